"""Slow feature analysis of time series."""

from __future__ import annotations

from typing import Any

from higsfa.estimators.sequence import SequenceEstimator


class SFA(SequenceEstimator):
    r"""Slow feature analysis of time series.

    Finds functions of the input that vary as slowly as possible over time. With the expanded, centred input
    :math:`z = g(x - \bar x)`, the features :math:`y_j = b_j^T (z - \bar z)` minimise

    .. math:: \Delta_j = \langle (y_j(t + \mathrm{lag}) - y_j(t))^2 \rangle_t

    under zero mean, unit variance and decorrelation. They solve the generalised eigenproblem
    :math:`\dot C b = \Delta C b` of the covariances of :math:`z` and of its differences in time. Noise has
    :math:`\Delta = 2`.

    Parameters
    ----------
    n_components : int, optional
        Number of features; all of them by default.
    expansion : str, Expansion or callable, default="identity"
        Nonlinear expansion of the centred input, such as ``"identity | quadratic"``; see
        :mod:`higsfa.core.expansion.expansion`. A callable gets samples as rows.
    lag : int, default=1
        Distance in time between the samples that are compared.
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
    Wiskott, L. and Sejnowski, T. (2002). Slow feature analysis: unsupervised learning of invariances.
    Neural Computation 14, 715-770.

    Examples
    --------
    A slow signal, hidden in noise by multiplying it with more noise, is found by a quadratic expansion:

    >>> import numpy as np
    >>> from higsfa import SFA
    >>> noise = np.random.default_rng(0).choice([-1.0, 1.0], size=2000)
    >>> slow = np.sin(0.01 * np.arange(2000))
    >>> X = np.column_stack([noise, slow * noise])
    >>> sfa = SFA(n_components=1, expansion="identity | quadratic").fit(X)
    >>> found = sfa.transform(X)[:, 0]
    >>> bool(abs(np.corrcoef(found, slow)[0, 1]) > 0.999)
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        expansion: Any = "identity",
        lag: int = 1,
        shrinkage: float = 0.0,
        clip_range: bool = True,
        center: Any = None,
    ) -> None:
        self.n_components = n_components
        self.expansion = expansion
        self.lag = lag
        self.shrinkage = shrinkage
        self.clip_range = clip_range
        self.center = center
