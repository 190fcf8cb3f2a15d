"""Graph-based slow feature analysis: supervised dimensionality reduction."""

from __future__ import annotations

from typing import Any

from higsfa.estimators.labelled import LabelledEstimator


class GSFA(LabelledEstimator):
    r"""Graph-based slow feature analysis: supervised dimensionality reduction.

    Samples are the vertices of a graph (weights :math:`v_n`), and edges (weights :math:`\gamma_{nn'}`) join samples
    with similar labels. With :math:`Q = \sum_n v_n` and :math:`R = \sum_{nn'} \gamma_{nn'}`, the features minimise

    .. math:: \Delta_j = \frac{1}{R} \sum_{n, n'} \gamma_{nn'} (y_j(n') - y_j(n))^2

    under weighted zero mean, unit variance and decorrelation. For a clustered graph they are those of Fisher's
    discriminant analysis; a serial graph orders them along a numeric label; a sum of graphs serves several labels.

    Parameters
    ----------
    n_components : int, optional
        Number of features; all of them by default.
    graph : recipe or str, default="auto"
        How labels become similarities: a recipe of :mod:`higsfa.graphs` or one of "clustered", "serial", "mixed",
        "window", "sequence". "auto" is clustered for discrete labels and serial for continuous ones.
    expansion : str, Expansion or callable, default="identity"
        Nonlinear expansion of the centred input, such as ``"identity | quadratic"``; see
        :mod:`higsfa.core.expansion.expansion`. A callable gets samples as rows.
    shrinkage : float, default=0.0
        Against over-fitting: solve as if every expanded variable had white noise of this fraction of its variance on
        top. Features are sorted by their Delta values with the noise; their own Delta values need not ascend then.
    clip_range : bool, default=True
        Clip inputs to their range in the training data before a nonlinear expansion, so that unseen data cannot blow
        up. It changes nothing on the training data.
    center : array-like of shape (n_features,), optional
        What to subtract from the input before the expansion; the mean by default. Given beforehand, `partial_fit`
        works with nonlinear expansions too.

    Attributes
    ----------
    delta_values_ : array
        Delta values, slowest first.
    n_slow_ : int
        Number of slow features; they are the first columns of the output.
    n_components_ : int
        Number of features.
    rank_ : int
        Rank of the covariance of the expanded data.
    mean_ : array of shape (n_features,)
        The centre that is subtracted from the input.
    statistics_ : Statistics
        The sums behind the fit. They add: ``a.statistics_ + b.statistics_``; see `fit_from_statistics`.
    n_features_in_ : int
        Number of inputs.

    References
    ----------
    Escalante-B., A. N. and Wiskott, L. (2013). How to solve classification and regression problems on high-dimensional
    data with a supervised extension of slow feature analysis. Journal of Machine Learning Research 14, 3683-3719.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from higsfa import GSFA
    >>> X, y = load_wine(return_X_y=True)
    >>> gsfa = GSFA(n_components=2, graph="clustered").fit(X, y)
    >>> gsfa.transform(X).shape
    (178, 2)
    >>> bool(gsfa.delta_values_[0] < 0.25)
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        graph: Any = "auto",
        expansion: Any = "identity",
        shrinkage: float = 0.0,
        clip_range: bool = True,
        center: Any = None,
    ) -> None:
        self.n_components = n_components
        self.graph = graph
        self.expansion = expansion
        self.shrinkage = shrinkage
        self.clip_range = clip_range
        self.center = center
