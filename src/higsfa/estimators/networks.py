"""Hierarchical networks: HiGSFA, HGSFA, HiSFA and HSFA."""

from __future__ import annotations

from typing import Any

from sklearn.base import _fit_context

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.graph.labels import as_labels
from higsfa.estimators.federated import FederatedNetwork
from higsfa.estimators.network import Network
from higsfa.estimators.parameters import LABELS, NETWORK, NO_LABELS, documented, fit_documented
from higsfa.estimators.validation import LABEL_KINDS, LAG, assign, warn_if_recording
from higsfa.graphs import GraphRecipe, SequenceGraph, as_recipe


class _LabelledNetwork(FederatedNetwork):
    _needs_labels = True
    _parameter_constraints = {
        **Network._parameter_constraints,
        "graph": [str, GraphRecipe],
        "label_kinds": LABEL_KINDS,
    }

    def __init__(
        self,
        layers: Any = None,
        *,
        graph: Any = "auto",
        label_kinds: Any = None,
        front: Any = "auto",
        input_shape: Any = None,
        n_jobs: int | None = None,
        memory_limit: Any = None,
        spill: Any = None,
        engine: str = "threads",
        clip_range: bool = True,
        verbose: int = 0,
    ) -> None:
        assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(LABELS)
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        graph: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        checkpoint: Any = None,
    ) -> Any:
        """Train layer by layer.

        {parameters}
        """
        given = self.graph if graph is None else graph
        recipe = given if isinstance(given, TrainingGraph) else as_recipe(given)
        return self._fit(X, as_labels(y), recipe, sample_weight, groups, checkpoint)


class _SequenceNetwork(Network):
    _parameter_constraints = {**Network._parameter_constraints, "lag": LAG}

    def __init__(
        self,
        layers: Any = None,
        *,
        lag: Any = 1,
        front: Any = None,
        input_shape: Any = None,
        n_jobs: int | None = None,
        memory_limit: Any = None,
        spill: Any = None,
        engine: str = "threads",
        clip_range: bool = True,
        verbose: int = 0,
    ) -> None:
        assign(locals())

    @_fit_context(prefer_skip_nested_validation=True)
    @fit_documented(NO_LABELS)
    def fit(self, X: Any, y: Any = None, groups: Any = None, *, checkpoint: Any = None) -> Any:
        """Train layer by layer on one or several recordings, with samples in time order.

        {parameters}
        """
        warn_if_recording(y, groups)
        return self._fit(X, None, SequenceGraph(self.lag), None, groups, checkpoint)


@documented(NETWORK)
class HiGSFA(_LabelledNetwork):
    r"""Hierarchical information-preserving graph-based slow feature analysis.

    A network of iGSFA nodes: supervised dimensionality reduction for images and other high-dimensional data. Each node
    keeps slow features and what else is needed to rebuild its input, so that upper nodes can still use it.

    {hierarchy}

    {parameters}

    {digits}
    """


@documented(NETWORK)
class HGSFA(_LabelledNetwork):
    r"""Hierarchical graph-based slow feature analysis: a network of GSFA nodes.

    Nodes keep slow features only. For comparison; :class:`HiGSFA` is the better choice, see the paper.

    {hierarchy}

    {parameters}

    {digits}
    """

    _preserve = False


@documented(NETWORK, width=2)
class HiSFA(_SequenceNetwork):
    r"""Hierarchical information-preserving slow feature analysis of time series: a network of iSFA nodes.

    Each node keeps slow features and what else is needed to rebuild its input.

    {hierarchy}

    {parameters}

    {toy}
    True
    """


@documented(NETWORK, width=1)
class HSFA(_SequenceNetwork):
    r"""Hierarchical slow feature analysis of time series: a network of SFA nodes.

    Nodes keep slow features only; what is not slow in a small field is lost, as in this example.

    {hierarchy}

    {parameters}

    {toy}
    False
    """

    _preserve = False
