"""From trained models to the steps that they are exported as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted

from higsfa.core.fields import Fields
from higsfa.core.node.node import Node
from higsfa.estimators.edges import OrientedEdges
from higsfa.estimators.label_head import LabelHead, LabelRegressor
from higsfa.estimators.label_task import GaussianClasses, per_label
from higsfa.estimators.network import Network
from higsfa.estimators.node import NodeEstimator
from higsfa.export.steps import TERMS, AffineStep, EdgesStep, HeadStep, LabelOutput, LayerStep, Step
from higsfa.reconstruction.gradients import NodeStack


@dataclass(frozen=True, eq=False)
class Exported:
    """The steps of a model, the shape of a sample, and whether single precision holds its numbers."""

    steps: tuple[Step, ...]
    input_shape: tuple[int, ...]
    fits_single: bool

    @property
    def head(self) -> HeadStep | None:
        last = self.steps[-1]
        return last if isinstance(last, HeadStep) else None


def steps_of(model: Any) -> Exported:
    """Take a fitted estimator or pipeline apart; what cannot be exported is refused by name."""
    if isinstance(model, Pipeline):
        named = [(name, step) for name, step in model.steps if step is not None and step != "passthrough"]
    else:
        named = [("", model)]
    steps: list[Step] = []
    nodes: list[Node] = []
    for name, estimator in named:
        check_is_fitted(estimator)
        prefix = f"{name}." if name else ""
        if steps and isinstance(steps[-1], HeadStep):
            raise TypeError(f"step {name!r} follows a LabelHead, which must be the last step")
        steps += _steps(estimator, prefix, nodes)
    if not steps:
        raise TypeError("a Pipeline without steps cannot be exported")
    first = named[0][1]
    shape = tuple(first.input_shape_) if isinstance(first, Network) else (int(first.n_features_in_),)
    if isinstance(first, OrientedEdges):
        shape = first.edges_.shape
    return Exported(tuple(steps), shape, all(node.fits_single for node in nodes))


def _steps(estimator: Any, prefix: str, nodes: list[Node]) -> list[Step]:
    """The steps of one estimator; its nodes are added to `nodes`."""
    if isinstance(estimator, Network):
        edges = [] if estimator.front_ is None else [EdgesStep(f"{prefix}edges", estimator.front_.edges_)]
        layers: list[Step] = []
        for k, layer in enumerate(estimator._trained, 1):
            nodes += layer.nodes
            plan = layer.plan
            layers.append(_layer(f"{prefix}layer{k}", layer.nodes, plan.n_components, plan.fields, plan.width))
        return [*edges, *layers]
    if isinstance(estimator, NodeEstimator):
        node = estimator._node
        nodes.append(node)
        if node.frontend.n_raw != estimator.n_features_in_:
            raise TypeError(f"this {type(estimator).__name__} looks at several samples at once and cannot be exported")
        if node.n_components == 0:
            raise ValueError(f"this {type(estimator).__name__} found no features: there is nothing to export")
        fields = Fields((1,), (1,), (1,))
        return [_layer(f"{prefix}node", [node], node.n_components, fields, estimator.n_features_in_)]
    if isinstance(estimator, OrientedEdges):
        return [EdgesStep(f"{prefix}edges", estimator.edges_)]
    if isinstance(estimator, LabelHead):
        return [_head(estimator, f"{prefix}head")]
    if type(estimator) in AFFINE:
        return [AFFINE[type(estimator)](estimator, f"{prefix}affine")]
    known = ", ".join(cls.__name__ for cls in AFFINE)
    where = f"step {prefix[:-1]!r}, a {type(estimator).__name__}," if prefix else f"a {type(estimator).__name__}"
    raise TypeError(
        f"{where} cannot be exported: use estimators and heads of this library, {known}, or a Pipeline of them; of a "
        "longer Pipeline, export the part that can be, as in pipeline[:-1]"
    )


def _layer(name: str, nodes: Sequence[Node], n_components: int, fields: Fields, width: int) -> LayerStep:
    expansion = nodes[0].frontend.expansion
    for term in expansion.terms:
        if type(term) not in TERMS:
            raise TypeError(
                f"{name}: the expansion '{expansion}' cannot be exported, because nothing is known about {term}; use "
                "the terms that have a name"
            )
    stack, mean = NodeStack.of(nodes, n_components), None
    if stack.projection is not None:
        found = [node.frontend.projection for node in nodes]
        mean = np.array([projection.mean for projection in found if projection is not None])[:, :, None]
    shift = np.array([node.frontend.center for node in nodes])[:, :, None]
    return LayerStep(name, stack, fields, width, mean, shift)


def _head(head: LabelHead, name: str) -> HeadStep:
    labels = []
    for label in head.label_names_:
        model = head.models_[label]
        if not isinstance(model, GaussianClasses):
            raise TypeError(
                f"label {label!r} is estimated by a {type(model).__name__}, which cannot be exported; leave "
                "`regressor` out, or export the features alone"
            )
        if len(head.label_names_) == 1 and head.output_form_ == "vector":
            shown = "label"
        else:
            shown = label if isinstance(label, str) else f"label{label}"
        is_numeric = head.is_numeric_[label]
        integer = is_numeric and bool(per_label(head.integer, label, False))
        labels.append(LabelOutput(shown, model, head.label_classes_[label], is_numeric, integer))
    return HeadStep(name, tuple(labels), not isinstance(head, LabelRegressor))


def _standard(scaler: StandardScaler, name: str) -> AffineStep:
    return AffineStep(name, scaler.mean_ if scaler.with_mean else None, 1 / scaler.scale_ if scaler.with_std else None)


def _min_max(scaler: MinMaxScaler, name: str) -> AffineStep:
    limits = tuple(scaler.feature_range) if scaler.clip else None
    return AffineStep(name, None, scaler.scale_, limits=limits, offset=scaler.min_)


def _pca(pca: PCA, name: str) -> AffineStep:
    scale = np.maximum(np.sqrt(pca.explained_variance_), np.finfo(np.float64).eps) if pca.whiten else 1.0
    return AffineStep(name, pca.mean_, None, pca.components_.T / scale)


AFFINE: dict[type, Callable[[Any, str], AffineStep]] = {StandardScaler: _standard, MinMaxScaler: _min_max, PCA: _pca}
