r"""Covariances in, nodes out: slow features, scalings, residual components.

Slow features minimise :math:`b^T \dot C b` under :math:`b^T C b = 1` (equations 1-4 of the paper). The
information-preserving node (Algorithm 1) predicts its input from the slow features, :math:`x' \approx M s' + b`, and
describes what is left by principal components. Both steps need nothing but covariances, so no sample is looked at
again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from higsfa.core.linalg import RANK_CUT, Pencil, fix_signs, principal_axes, whole
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.node import Node
from higsfa.core.sums.sums import Covariances

Floats = NDArray[np.float64]
AUTO = "auto"
"""An option that is chosen on unseen samples."""
TIE = 1e-9
"""Delta values count as equal if they differ by this part of them, and by rounding errors. No absolute number would do:
those of slow signals are (pi / N)^2."""


@dataclass(frozen=True)
class NodeOptions:
    """What a node shall extract.

    Attributes
    ----------
    n_components : D, the number of features; None for all.
    preserve : whether the node is information preserving (iSFA, iGSFA) or only slow (SFA, GSFA).
    delta_threshold, n_slow : the slow part has as many features as there are with Delta below the threshold among the
        first n_components, or exactly n_slow.
    scaling : "sensitivity" or "qr".
    min_scale : lower bound on the scales, relative to the largest.
    weighted : regression and PCA with vertex weights instead of plain ones.
    shrinkage : variance of white noise that the solution allows for, as a fraction of each variable's variance; "auto"
        as long as it has not been chosen.
    all_deltas : whether to compute the Delta values of features that are not used, too.
    """

    n_components: int | None = None
    preserve: bool = False
    delta_threshold: float = 1.96
    n_slow: Any = None
    scaling: str = "sensitivity"
    min_scale: float = 1e-3
    weighted: bool = False
    shrinkage: Any = 0.0
    all_deltas: bool = False

    @property
    def is_open(self) -> bool:
        """Whether something is to be chosen on unseen samples."""
        return AUTO in (self.shrinkage, self.n_slow)

    @property
    def learns(self) -> bool:
        """Whether nodes learn from the graph; without slow features they preserve what varies, whatever its labels."""
        return not self.preserve or self.n_slow != 0 or self.weighted

    def settled(self) -> NodeOptions:
        """The options where nothing can be chosen: no shrinkage, slow features by their threshold."""
        shrinkage = 0.0 if self.shrinkage == AUTO else self.shrinkage
        return replace(self, shrinkage=shrinkage, n_slow=None if self.n_slow == AUTO else self.n_slow)


@dataclass(frozen=True, eq=False)
class SlowFeatures:
    """Slow features s = B^T (z - mean): B (I', k), and Delta values of these and perhaps further ones.

    `pencil` is the eigenproblem that was solved.
    """

    B: Floats
    delta_values: Floats
    pencil: Pencil


def slow_features(
    cov: Covariances,
    n_expanded: int,
    shrinkage: float,
    n_deltas: int,
    n_features: int,
    limit: float = np.inf,
    *,
    pencil: Pencil | None = None,
    is_path: bool = False,
) -> SlowFeatures:
    """Features of the expanded input, slowest first, with weighted variance 1 and decorrelated.

    At most `n_features` of them, those with Delta below `limit`, and at most `n_deltas` Delta values. With shrinkage
    (see :func:`_measured`) Delta values do not ascend, so a limit below 2 leaves out no more than what is as fast as
    noise: that is so with shrinkage if and only if it is so without. On a path of several values of the shrinkage, the
    pencil of the one before is given, so that covariances are decomposed once.
    """
    C, C_dot = cov.C[:n_expanded, :n_expanded], cov.C_dot[:n_expanded, :n_expanded]
    variance = np.diag(C)
    scale = np.sqrt(np.where(variance > cov.noise[:n_expanded], variance, 0.0))
    if pencil is None:
        pencil = Pencil(C_dot, C, scale, cov.precision**RANK_CUT, shrinkage, diagonal=is_path)
    else:
        pencil = pencil.plus(shrinkage)
    tie = (1e3 if cov.precision < 1e-10 else 8.0) * cov.precision  # rounding errors of sums over edges
    most = max(n_features, n_deltas) if shrinkage else n_features
    deltas, B = pencil.pairs(most + 1)
    if shrinkage:
        limit = 2.0 if limit < 2.0 and n_deltas <= n_features else np.inf
    n = min(most, int(np.searchsorted(deltas, limit)))
    if n > 0 and len(deltas) < pencil.rank and deltas[-1] <= deltas[n - 1] + TIE * abs(deltas[n - 1]) + tie:
        deltas, B = pencil.pairs(pencil.rank)  # equally slow features must not be cut apart
    if not shrinkage and len(deltas) < min(n_deltas, pencil.rank):
        deltas = pencil.values()
    B, deltas = untangle(B, deltas, scale, tie, n)
    B = B[:, :n]
    if shrinkage:
        B, deltas = _measured(B, whole(C), whole(C_dot))
    B = B[:, :n_features]
    return SlowFeatures(B * fix_signs(B, scale), np.maximum(deltas, 0.0)[:n_deltas], pencil)


def _measured(B: Floats, C: Floats, C_dot: Floats) -> tuple[Floats, Floats]:
    r"""Features that were found with shrinkage, brought to unit variance, and their Delta values.

    They were found as if white noise of variance :math:`\lambda` had been added to the standardised variables: this
    adds :math:`\lambda` to the diagonal of the correlation matrix and :math:`2 \lambda` to that of the edge term (noise
    has Delta 2), so directions of little variance lose their appeal. The features are sorted by their Delta values with
    the noise. Without it they are no longer exactly decorrelated, and their Delta values need not ascend.
    """
    B = B / np.sqrt(np.einsum("ij,ij->j", B, C @ B))
    return B, np.einsum("ij,ij->j", B, C_dot @ B)


def untangle(B: Floats, deltas: Floats, scale: Floats, tie: float, n_wanted: int) -> tuple[Floats, Floats]:
    """Fix the rotation among features with equal Delta values.

    Slowness alone leaves it open. Among equally slow features, those with the smallest weights on standardised
    variables come first: they vary most with the data and least with noise.
    """
    B, deltas = B.copy(), deltas.copy()
    start = 0
    while start < min(n_wanted, len(deltas)):
        last = deltas[start] + TIE * abs(deltas[start]) + tie
        stop = start + max(1, int(np.searchsorted(deltas[start:], last, side="right")))  # past NaN, too
        if stop - start > 1:
            weights = B[:, start:stop] * scale[:, None]
            V = np.linalg.eigh(weights.T @ weights)[1]
            deltas[start:stop] = np.einsum("i,ij,ij->j", deltas[start:stop], V, V)
            B[:, start:stop] = B[:, start:stop] @ V
        start = stop
    return B, deltas


def n_slow_features(deltas: Floats, n_expanded: int, options: NodeOptions) -> int:
    """J of the paper."""
    limit = len(deltas) if options.n_components is None else min(len(deltas), options.n_components)
    if not options.preserve:
        return limit
    if options.n_slow is not None:
        return min(int(options.n_slow), limit)
    if options.delta_threshold >= 4.0:
        return limit
    widest = n_expanded if options.n_components is None else min(n_expanded, options.n_components)
    return min(int(np.sum(deltas[:limit] < options.delta_threshold)), widest - 1)


@dataclass(frozen=True, eq=False)
class _Regression:
    """x ~ M s + b from the first J slow features, and the principal components of what is left."""

    M: Floats
    variances: Floats
    axes: Floats


def solve_node(cov: Covariances, frontend: Frontend, shift: Floats, options: NodeOptions) -> Node:
    """Solve a node. `cov` and `shift` are those of its variables t (see :class:`Frontend`)."""
    n = frontend.n_expanded
    most = n if options.n_components is None else options.n_components
    wanted, limit = most, np.inf
    if options.preserve and options.n_slow is not None:
        wanted = min(most, max(1, options.n_slow))
    elif options.preserve and options.delta_threshold < 4.0:
        limit = options.delta_threshold
    slow = slow_features(cov, n, options.shrinkage, n if options.all_deltas else wanted, wanted, limit)
    J = n_slow_features(slow.delta_values, n, options)
    sigma, mu = (cov.C, cov.mean) if options.weighted else (cov.plain, cov.plain_mean)
    sigma = whole(sigma)
    noise = cov.noise if options.weighted else cov.plain_noise
    constant = np.diag(sigma) <= noise  # up to rounding: no component shall describe these
    sigma[constant], sigma[:, constant] = 0.0, 0.0
    fit, J = _regress(sigma, slow.B, frontend.layout.input_rows, J, cov.precision, options)
    if slow.B.shape[1] < min(slow.pencil.rank, most) and J + len(fit.variances) < (options.n_components or 0):
        # The residual has too few components: more slow features are needed than were computed.
        slow = slow_features(cov, n, options.shrinkage, n if options.all_deltas else most, most)
        fit, J = _regress(sigma, slow.B, frontend.layout.input_rows, J, cov.precision, options)
    return _assemble(cov, frontend, shift, slow, fit, J, mu, options)


def _regress(
    sigma: Floats, B_all: Floats, inputs: NDArray[np.intp], J: int, precision: float, options: NodeOptions
) -> tuple[_Regression, int]:
    """Regression and residual components; J grows where the residual has too few of them."""
    n = len(B_all)
    X = sigma[np.ix_(inputs, inputs)]
    no_axes = np.zeros(0), np.zeros((len(inputs), 0))
    while True:
        B = B_all[:, :J]
        to_all = sigma[:, :n] @ B
        to_inputs = to_all[inputs]
        M = to_inputs @ np.linalg.pinv(B.T @ to_all[:n], rcond=1e-12, hermitian=True)
        wants_rest = options.preserve and not (options.n_slow is None and options.delta_threshold >= 4.0)
        rest = len(inputs) if options.n_components is None else max(options.n_components - J, 0)
        explained = M @ to_inputs.T
        # What is left of an explained variance is rounding below some eps of it, and no component.
        floor = max(0.0, 1e-12 * float(np.trace(X)), 64 * precision * float(np.trace(explained)))
        variances, axes = principal_axes(X - explained, floor, rest) if wants_rest else no_axes
        missing = 0 if options.n_components is None else rest - len(variances)
        if missing <= 0 or B_all.shape[1] <= J or not options.preserve:
            return _Regression(M, variances, axes), J
        J = min(J + missing, B_all.shape[1])


def scales(M: Floats, largest_rest: float, options: NodeOptions) -> Floats:
    """The matrix that scales (and with "qr" mixes) unit-variance slow features: y' = A s'."""
    J = M.shape[1]
    if options.scaling == "sensitivity":
        lengths = np.linalg.norm(M, axis=0)
        return np.diag(_bounded(lengths, largest_rest, options.min_scale))
    R = scipy.linalg.qr(np.vstack([M, np.zeros((max(J - len(M), 0), J))]), mode="economic", check_finite=False)[1]
    R = R * np.where(np.diag(R) < 0, -1.0, 1.0)[:, None]
    diagonal = np.diag(R)
    return np.asarray(R + np.diag(_bounded(diagonal, largest_rest, options.min_scale) - diagonal))


def _bounded(lengths: Floats, largest_rest: float, min_scale: float) -> Floats:
    largest = max(float(np.max(lengths, initial=0.0)), largest_rest)
    return np.maximum(lengths, min_scale * largest) if largest > 0 else np.ones_like(lengths)


def _inverted(A: Floats) -> Floats:
    """Pseudo-inverse of the scales: one may be 0 if min_scale is."""
    diagonal = np.diag(A)
    if np.count_nonzero(A) > np.count_nonzero(diagonal):
        return np.asarray(np.linalg.pinv(A, rcond=1e-14), dtype=np.float64)
    kept = np.abs(diagonal) > 1e-14 * np.max(np.abs(diagonal), initial=0.0)
    return np.diag(np.divide(1.0, diagonal, out=np.zeros(len(A)), where=kept))


def _assemble(
    cov: Covariances,
    frontend: Frontend,
    shift: Floats,
    slow: SlowFeatures,
    fit: _Regression,
    J: int,
    mu: Floats,
    options: NodeOptions,
) -> Node:
    """Write slow and reconstructive parts as affine maps, relative to the shift first."""
    n, inputs, B, M = frontend.n_expanded, frontend.layout.input_rows, slow.B[:, :J], fit.M
    A, decode_slow = np.eye(M.shape[1]), M
    if options.preserve:
        A = scales(M, float(np.sqrt(np.max(fit.variances, initial=0.0))), options)
        decode_slow = M @ _inverted(A)
    F = A @ B.T
    # y' = A s' with s' of weighted mean 0; b makes the residual x' - M s' - b of plain mean 0.
    f = -F @ cov.mean[:n]
    b = mu[inputs] - M @ (B.T @ (mu[:n] - cov.mean[:n]))
    G, H = fit.axes.T, -fit.axes.T @ decode_slow
    plain = cov.plain_mean
    slow_mean = F @ plain[:n] + f
    output_mean = np.concatenate([slow_mean, G @ (plain[inputs] - b) + H @ slow_mean])
    if frontend.expansion.is_linear:
        # Nothing is clipped or expanded, so the centre may be set after the fact, to the mean of the inputs.
        center = frontend.center + shift[inputs] + plain[inputs]
        frontend = replace(frontend, center=center, low=None, high=None)
        f, b = f + F @ plain[:n], b - plain[inputs]
    else:
        f, b = f - F @ shift[:n], b + shift[inputs]
    return Node(
        frontend=frontend,
        slow=F,
        slow_offset=f,
        rest_inputs=G,
        rest_slow=H,
        rest_offset=-G @ b,
        decoder=np.column_stack([decode_slow, fit.axes]),
        decode_offset=b + frontend.center,
        delta_values=slow.delta_values,
        rank=slow.pencil.rank,
        output_mean=output_mean,
    )
