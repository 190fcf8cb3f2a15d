"""Hierarchical networks: HiGSFA, HGSFA, HiSFA and HSFA."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval

from higsfa.core.graph import build
from higsfa.core.graph.graph import TrainingGraph
from higsfa.estimators.network import Network
from higsfa.graphs import GraphRecipe, as_recipe

_COMMON = """

    Each node sees a small receptive field of the layer below, so that cost is linear in the size of the input and in
    the number of samples. Training is closed form, one pass per layer plus one over the raw input.

    Parameters
    ----------
    layers : list of Layer, optional
        The layers, bottom up; a pyramid for the shape of the input by default (see :func:`higsfa.presets.pyramid`).
    {graph_or_lag}
    input_shape : tuple of int, optional
        Shape of a sample: (length,), (height, width), (depth, height, width), each with the number of channels last if
        there are several. Taken from X by default; for flat X without it, a one-dimensional signal.
    n_jobs : int, optional
        Number of threads; -1 for all cores. The result does not depend on it, to the bit.
    memory_limit : int or str, optional
        Budget for what is kept between passes, such as "2 GiB"; half of the available memory by default. With less,
        features wait on disk instead (see `spill`). The result does not depend on it.
    spill : str, path or False, optional
        Folder for features that do not fit in that memory; the one for temporary files by default, if it is on a disk.
        False: nothing is written, such features are computed again in every pass.
    engine : {threads_or_dask}, default="threads"
        Where passes run: on threads of this process, or on the workers of the active `distributed.Client` (of a cluster
        of `n_jobs` processes on this machine if there is none). The result is the same, to the bit.
    clip_range : bool, default=True
        Each nonlinear node clips its input to the range it saw in training, so that unseen data cannot blow up from
        layer to layer.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    layers_ : list
        The trained layers: `delta_values`, `n_slow` and `rank` of every node, and the nodes themselves.
    n_components_ : int
        Number of features.
    n_slow_ : int or None
        Size of the slow part of the top node, if there is one top node.
    delta_values_ : array or None
        Delta values of the slow features of the top node.
    input_shape_ : tuple of int
        Shape of a sample.

    References
    ----------
    Escalante-B., A. N. and Wiskott, L. (2020). Improved graph-based SFA: information preservation complements the
    slowness principle. Machine Learning 109, 999-1037.

    """
_GRAPH = """graph : recipe or str, default="auto"
        How labels become similarities; see :mod:`higsfa.graphs`."""
_LAG = """lag : int, default=1
        Distance in time between the samples that are compared."""


def _documented(graph_or_lag: str) -> Callable[[type], type]:
    """Fill in what the documentation of all networks has in common, where {common} stands."""

    def fill(network: type) -> type:
        common = _COMMON.format(graph_or_lag=graph_or_lag, threads_or_dask='{"threads", "dask"}').strip()
        network.__doc__ = (network.__doc__ or "").replace("{common}", common)
        return network

    return fill


class _LabelledNetwork(Network):
    _needs_labels = True
    _parameter_constraints = {**Network._parameter_constraints, "graph": [str, GraphRecipe]}

    def __init__(
        self,
        layers: Any = None,
        *,
        graph: Any = "auto",
        input_shape: Any = None,
        n_jobs: int | None = None,
        memory_limit: Any = None,
        spill: Any = None,
        engine: str = "threads",
        clip_range: bool = True,
        verbose: int = 0,
    ) -> None:
        self.layers = layers
        self.graph = graph
        self.input_shape = input_shape
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.spill = spill
        self.engine = engine
        self.clip_range = clip_range
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
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

        Parameters
        ----------
        X : array-like of shape (n_samples, *input_shape) or (n_samples, n_features), or a source, zarr or dask array
        y : array-like, DataFrame or dict of arrays
            Labels; missing values take a sample out of the graph of that label only.
        graph : recipe, TrainingGraph or str, optional
            Used instead of the parameter `graph`.
        sample_weight : array-like of shape (n_samples,), optional
            Weight w counts a sample w times.
        groups : array-like of shape (n_samples,), optional
            The recording of each sample, for graphs in time order.
        checkpoint : path, optional
            A folder: what is finished is written there, and an interrupted fit of the same data, labels and settings
            goes on from there, to the same bits.

        Returns
        -------
        self
        """

        def make(n: int) -> TrainingGraph:
            if isinstance(graph, TrainingGraph):
                return graph
            recipe = as_recipe(self.graph if graph is None else graph)
            return recipe.build(y, sample_weight=sample_weight, groups=groups, n_samples=n)

        return self._fit(X, make, checkpoint)


class _SequenceNetwork(Network):
    _parameter_constraints = {
        **Network._parameter_constraints,
        "lag": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        layers: Any = None,
        *,
        lag: int = 1,
        input_shape: Any = None,
        n_jobs: int | None = None,
        memory_limit: Any = None,
        spill: Any = None,
        engine: str = "threads",
        clip_range: bool = True,
        verbose: int = 0,
    ) -> None:
        self.layers = layers
        self.lag = lag
        self.input_shape = input_shape
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.spill = spill
        self.engine = engine
        self.clip_range = clip_range
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, groups: Any = None, *, checkpoint: Any = None) -> Any:
        """Train layer by layer on one or several recordings.

        Parameters
        ----------
        X : array-like of shape (n_samples, *input_shape) or (n_samples, n_features), or a source, zarr or dask array
            Samples in time order.
        y : ignored
        groups : array-like of shape (n_samples,), optional
            The recording of each sample.
        checkpoint : path, optional
            A folder: what is finished is written there, and an interrupted fit of the same data and settings goes on
            from there, to the same bits.

        Returns
        -------
        self
        """
        return self._fit(X, lambda n: build.sequence(build.recording_lengths(groups, n), self.lag), checkpoint)


@_documented(_GRAPH)
class HiGSFA(_LabelledNetwork):
    r"""Hierarchical information-preserving graph-based slow feature analysis.

    A network of iGSFA nodes: supervised dimensionality reduction for images and other high-dimensional data. Each node
    keeps slow features and, beside them, what is needed to rebuild its input, so that upper nodes can still use it.

    {common}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from higsfa import HiGSFA, Layer
    >>> images, digit = load_digits(return_X_y=True)
    >>> layers = [Layer(field=(4, 4), stride=(2, 2), n_components=8), Layer(field=(3, 3), n_components=12)]
    >>> net = HiGSFA(layers, input_shape=(8, 8)).fit(images, digit)
    >>> net.transform(images).shape
    (1797, 12)
    >>> net.layers_[0].shape
    (3, 3)
    """


@_documented(_GRAPH)
class HGSFA(_LabelledNetwork):
    r"""Hierarchical graph-based slow feature analysis: a network of GSFA nodes.

    Nodes keep slow features only. Kept for comparison; :class:`HiGSFA` is the better choice, see the paper.

    {common}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from higsfa import HGSFA, Layer
    >>> images, digit = load_digits(return_X_y=True)
    >>> layers = [Layer(field=(4, 4), stride=(2, 2), n_components=8), Layer(field=(3, 3), n_components=12)]
    >>> net = HGSFA(layers, input_shape=(8, 8)).fit(images, digit)
    >>> net.transform(images).shape
    (1797, 12)
    >>> net.layers_[0].shape
    (3, 3)
    """

    _preserve = False


@_documented(_LAG)
class HiSFA(_SequenceNetwork):
    r"""Hierarchical information-preserving slow feature analysis of time series: a network of iSFA nodes.

    Each node keeps slow features and, beside them, what is needed to rebuild its input.

    {common}

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import HiSFA, Layer
    >>> from higsfa.datasets import make_toy
    >>> X, signals = make_toy(4000)
    >>> quadratic = "identity | quadratic"
    >>> net = HiSFA(
    ...     [Layer(2, n_components=2, expansion=quadratic), Layer(2, n_components=1, n_slow=1, expansion=quadratic)]
    ... )
    >>> found = net.fit_transform(X)[:, 0]
    >>> bool(abs(np.corrcoef(found, signals["s1"])[0, 1]) > 0.99)
    True
    """


@_documented(_LAG)
class HSFA(_SequenceNetwork):
    r"""Hierarchical slow feature analysis of time series: a network of SFA nodes.

    Nodes keep slow features only; what is not slow in a small field is lost, as in this example.

    {common}

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import HSFA, Layer
    >>> from higsfa.datasets import make_toy
    >>> X, signals = make_toy(4000)
    >>> quadratic = "identity | quadratic"
    >>> net = HSFA(
    ...     [Layer(2, n_components=1, expansion=quadratic), Layer(2, n_components=1, n_slow=1, expansion=quadratic)]
    ... )
    >>> found = net.fit_transform(X)[:, 0]
    >>> bool(abs(np.corrcoef(found, signals["s1"])[0, 1]) > 0.99)
    False
    """

    _preserve = False
