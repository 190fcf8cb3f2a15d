"""Information-preserving slow feature analysis (iSFA) of time series."""

from __future__ import annotations

from typing import Any

from higsfa.estimators.sequence import SequenceEstimator


class ISFA(SequenceEstimator):
    r"""Information-preserving slow feature analysis (iSFA) of time series.

    The features have two parts. The slow part :math:`s'` holds the SFA features with :math:`\Delta` below
    `delta_threshold`. The input is predicted from them, :math:`x' \approx M s' + b`, and the reconstructive part holds
    the first principal components of what is left, :math:`u = x' - M s' - b`. Slow features are scaled to
    :math:`y' = \Lambda s'` (or :math:`R s'`), so that a change of a feature changes the reconstruction by as much.
    `inverse_transform` rebuilds the input: :math:`\tilde x = M \Lambda^{-1} y' + b + W^T h + \bar x`.
    Written with a lower-case i in the paper; independent SFA is another method.

    Parameters
    ----------
    n_components : int, optional
        Number of features; all of them by default.
    expansion : str, Expansion or callable, default="identity"
        Nonlinear expansion of the centred input, such as ``"identity | quadratic"``; see
        :mod:`higsfa.core.expansion.expansion`. A callable gets samples as rows.
    lag : int, default=1
        Distance in time between the samples that are compared.
    delta_threshold : float, default=1.96
        Features with Delta below it form the slow part; noise has Delta 2. Negative: no slow part, that is PCA.
        4 or more: slow features only.
    n_slow : int, optional
        The number of slow features, instead of `delta_threshold`.
    scaling : {"sensitivity", "qr"}, default="sensitivity"
        How slow features get amplitudes that match the reconstructive ones: by the norm of their column of M, without
        mixing them, or by the QR decomposition of M.
    min_scale : float, default=1e-3
        Lower bound on the scales, relative to the largest amplitude.
    weighted : bool, default=False
        Whether regression and PCA use the vertex weights of the graph, too.
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
        Delta values, slowest first; the first `n_slow_` of them are the slow part.
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
    Escalante-B., A. N. and Wiskott, L. (2020). Improved graph-based SFA: information preservation complements the
    slowness principle. Machine Learning 109, 999-1037.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa import ISFA
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([np.sin(0.01 * np.arange(1000)), rng.standard_normal((1000, 3))])
    >>> isfa = ISFA(n_components=3, n_slow=1).fit(X)
    >>> isfa.get_feature_names_out().tolist()
    ['isfa_slow0', 'isfa_rec0', 'isfa_rec1']
    >>> isfa.inverse_transform(isfa.transform(X)).shape
    (1000, 4)
    """

    _parameter_constraints = {**SequenceEstimator._parameter_constraints, **SequenceEstimator._preserving_constraints}
    _preserve = True

    def __init__(
        self,
        n_components: int | None = None,
        *,
        expansion: Any = "identity",
        lag: int = 1,
        delta_threshold: float = 1.96,
        n_slow: int | None = None,
        scaling: str = "sensitivity",
        min_scale: float = 1e-3,
        weighted: bool = False,
        shrinkage: float = 0.0,
        clip_range: bool = True,
        center: Any = None,
    ) -> None:
        self.n_components = n_components
        self.expansion = expansion
        self.lag = lag
        self.delta_threshold = delta_threshold
        self.n_slow = n_slow
        self.scaling = scaling
        self.min_scale = min_scale
        self.weighted = weighted
        self.shrinkage = shrinkage
        self.clip_range = clip_range
        self.center = center
