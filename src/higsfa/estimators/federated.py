"""Networks that several parties train together without showing their samples."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from numbers import Integral
from typing import Any

import numpy as np

from higsfa.core.graph.labels import as_labels, find_classes, numeric, pick_label
from higsfa.estimators.network import Network
from higsfa.estimators.validation import (
    check_data,
    check_left_out,
    explained,
    report_not_finite,
    unchanged_on_error,
    working_dtype,
)
from higsfa.graphs import GraphRecipe, LabelGraph, UniformGraph, as_recipe, check_weights
from higsfa.graphs.label import summation, why_not_additive
from higsfa.graphs.recipes import _terms
from higsfa.training.budget import parse_memory
from higsfa.training.federated import LayerStatistics, Progress
from higsfa.training.runner import threads
from higsfa.training.statistics import sum_inputs


class FederatedNetwork(Network):
    """`layer_statistics` and `solve_layer`."""

    _progress: Progress | None = None

    def federated_rounds(self) -> list[int]:
        """The layers in the order in which parties exchange sums, from 1.

        A layer comes twice if its nodes need common means or principal components of their inputs first.

        Returns
        -------
        list of int

        Examples
        --------
        >>> from higsfa import HiGSFA, Layer
        >>> HiGSFA([Layer(4, pca=3), Layer(2)], graph="clustered", input_shape=8).federated_rounds()
        [1, 1, 2]
        """
        plans = self._federated_plans()
        rounds = []
        for number, plan in enumerate(plans, 1):
            known = number > 1 and not plans[number - 2].shared
            twice = plan.pca is not None or not (known or plan.expansion.is_linear)
            rounds += [number] * (1 + twice)
        return rounds

    def layer_statistics(
        self, k: int, X: Any, y: Any = None, *, sample_weight: Any = None, min_group_size: int = 10
    ) -> LayerStatistics:
        """The sums of layer k over the samples of one party, to be added to those of the others.

        Layers below must have been solved. For a layer that `federated_rounds` lists twice, the first are sums of its
        inputs. All sums are taken in double precision.

        Parameters
        ----------
        k : int
            Number of the layer, from 1.
        X : samples, as in `fit`
        y : labels, as in `fit`
            The graph must be one whose sums add: LabelGraph with a `label_range`, sums of those and of UniformGraph,
            ClusteredGraph or CodeGraph.
        sample_weight : array-like of shape (n_samples,), optional
        min_group_size : int, default=10
            Refuse to sum fewer samples than this: of a class, with or without a label, or altogether. 1 allows all.

        Returns
        -------
        LayerStatistics
            With ``+``; `higsfa.save` and `higsfa.load` take it.

        Examples
        --------
        >>> import numpy as np
        >>> from sklearn.datasets import load_digits
        >>> from higsfa import HiGSFA, Layer
        >>> X, y = load_digits(return_X_y=True)
        >>> net = HiGSFA([Layer((4, 4), n_components=8), Layer((2, 2))], graph="clustered", input_shape=(8, 8))
        >>> for k in net.federated_rounds():
        ...     sums = sum(net.layer_statistics(k, X[part::3], y[part::3]) for part in range(3))
        ...     net = net.solve_layer(k, sums)
        >>> net.transform(X).shape
        (1797, 20)
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            progress, recipe = self._present(k), as_recipe(self.graph)
            if not isinstance(min_group_size, Integral) or min_group_size < 1:
                raise ValueError(f"min_group_size must be an integer of at least 1, got {min_group_size!r}")
            source = check_data(self, X, reset=True, allow_nd=True)
            self._input_shape_of(source.shape)
            w, y = check_weights(sample_weight, len(source)), as_labels(y)
            parts = summation(recipe, y, w)
            assert parts is not None
            _check_groups(recipe, y, w, int(min_group_size))
            check_left_out(self, source, w)
            if progress.frontends is None:
                parts = sum_inputs(w)
            _, rounding = working_dtype(source, [plan.expansion for plan in progress.plans])
            limit, n_jobs = parse_memory(self.memory_limit), self._n_jobs()
            sums = progress.gather(
                parts, source.take, source.dtype, rounding, n_jobs=n_jobs, limit=limit, spill=self.spill
            )
            if not all(node.sums.is_finite() for node in sums.nodes):
                report_not_finite(self, source)
        return sums

    def solve_layer(self, k: int, sums: LayerStatistics) -> Any:
        """Train layer k, or find the means and principal components of its inputs, from the sums of all parties.

        After the last layer the network is fitted.

        Parameters
        ----------
        k : int
            Number of the layer, from 1.
        sums : LayerStatistics
            The sum of what `layer_statistics` gave to all parties.

        Returns
        -------
        self
        """
        with unchanged_on_error(self), np.errstate(all="ignore"):
            if not isinstance(sums, LayerStatistics):
                raise TypeError(f"sums must be what layer_statistics gives, got {type(sums).__name__}")
            progress = self._present(k)
            origin = sums.nodes[0].origin
            if not sums.of_inputs and not as_recipe(self.graph).makes(origin):
                raise ValueError(f"{sums} were gathered for {origin}, which does not fit graph={self.graph!r}")
            with threads(self._n_jobs()) as run, explained(self, None):
                progress = progress.solve(sums, run)
            self._progress = progress
            if len(progress.trained) == len(progress.plans):
                shape = self._shape()
                assert shape is not None
                self._adopt(list(progress.trained), shape, None)
                self.n_features_in_ = prod(shape)
        return self

    def _federated_plans(self) -> list[Any]:
        self._validate_params()
        reason = why_not_additive(self.graph)
        if reason:
            raise ValueError(f"sums of several parties do not add: {reason}")
        shape = self._shape() if self.input_shape is not None else None
        if shape is None:
            raise ValueError("input_shape: give it, so that all parties plan the same network")
        if self._front(shape) is not None:
            raise ValueError(
                "front: each party describes its pictures by OrientedEdges itself, and passes the cells; set front=None"
            )
        return [replace(plan, options=plan.options.settled()) for plan in self._planned(shape)]

    def _present(self, k: Any) -> Progress:
        """What has been solved so far; an error if layer k is not the next one, or parameters have changed."""
        plans, progress = tuple(self._federated_plans()), self._progress
        if progress is None:
            progress = Progress(plans)
        elif progress.plans != plans:
            raise ValueError("layers were changed after the first round: begin anew with a clone of the network")
        if not isinstance(k, Integral) or k != progress.layer:
            raise ValueError(
                f"k={k!r}: layer {progress.layer} of {len(plans)} is the next one; layers are numbered from 1 and "
                "solved one after the other"
            )
        return progress


def _check_groups(recipe: GraphRecipe, y: Any, w: np.ndarray, least: int) -> None:
    """Raise if sums, or differences of them, are over fewer samples than `least`."""
    groups: list[tuple[str, Any]] = [("in all", np.ones(len(w), dtype=bool))]
    for part in _terms(recipe)[0]:
        if isinstance(part, UniformGraph):
            continue
        values = pick_label(y, part.label, len(w))
        name = "" if part.label is None else f" {part.label!r}"
        if isinstance(part, LabelGraph):
            missing = np.isnan(numeric(values, "LabelGraph"))
            groups += [(f"with a label{name}", ~missing), (f"without a label{name}", missing)]
        else:
            codes, classes = find_classes(values)
            groups += [(f"of class {value}", codes == number) for number, value in enumerate(classes)]
            groups += [(f"without a class{name}", codes < 0)]
    for what, members in groups:
        n = int(np.count_nonzero(members & (w > 0)))
        if 0 < n < least:
            raise ValueError(
                f"min_group_size={least}: there are {n} samples {what}, and sums over so few tell about each of them; "
                "leave them out, or lower min_group_size"
            )
