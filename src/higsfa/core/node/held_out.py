r"""Shrinkage chosen on samples that training has not seen, from covariances alone.

A node is trained on the covariances of some samples, and the Delta values of its features are measured on those of
others, :math:`b^T \dot C b / b^T C b`. Training Delta values say nothing where samples are few: they fall to 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.linalg import decorrelating, whole
from higsfa.core.node.solve import AUTO, NodeOptions, n_slow_features, slow_features
from higsfa.core.sums.sums import Covariances

Floats = NDArray[np.float64]

LADDER = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Values of the shrinkage that are tried."""
LEAST_SHARE = 1e-9
"""Of Delta / 2, where its logarithm is taken: Delta is 0 up to rounding where samples of a class are all alike."""
MOST_FEATURES = 32
"""Features that a value of the shrinkage is judged by, at most."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """How features do on unseen samples, for several values of the shrinkage and several divisions of the samples.

    Attributes
    ----------
    ladder : (L,) values of the shrinkage.
    slowness : (L, divisions) sum of max(0, 1 - Delta / 2) over features, decorrelated one after the other: those that
        a node would keep (with Delta below `delta_threshold` on training samples, if that decides).
    information : (L, divisions) sum of max(0, -log(Delta / 2) / 2) over the same features, in nats: what Gaussian
        features say about the label, or about their neighbours on the graph.
    delta_values, training_delta_values : (L, divisions, k) Delta of each feature on unseen and on training samples;
        NaN where there are fewer features.
    noise : Delta of noise on the unseen samples, at most 2; see :func:`noise_level`.
    best : number of the value that is taken: the one with the slowest features on unseen samples, the smaller one of
        two that are as good; in a network, of all layers together.
    shrinkage : what is taken: the best value, or in a network one between it and its neighbours.
    """

    ladder: Floats
    slowness: Floats
    information: Floats
    delta_values: Floats
    training_delta_values: Floats
    noise: float = 2.0
    best: int = -1
    shrinkage: float = -1.0

    def __post_init__(self) -> None:
        if self.best < 0:
            object.__setattr__(self, "best", int(np.argmax(self.slowness.mean(axis=1))))
        if self.shrinkage < 0:
            object.__setattr__(self, "shrinkage", float(self.ladder[self.best]))

    def only_best(self) -> HeldOut:
        """The same for the best value alone."""
        i = slice(self.best, self.best + 1)
        rest = self.information[i], self.delta_values[i], self.training_delta_values[i]
        return HeldOut(self.ladder[i], self.slowness[i], *rest, self.noise)

    def chosen(self, options: NodeOptions) -> NodeOptions:
        """Options with the best shrinkage, and with the number of features that are slower than noise if it is open.

        Features count whose mean Delta is below that of noise by more than its standard error.
        """
        options = replace(options, shrinkage=self.shrinkage)
        if options.n_slow != AUTO:
            return options
        deltas = self.delta_values[self.best]
        error = np.nan_to_num(np.std(deltas, axis=0, ddof=1)) / np.sqrt(len(deltas)) if len(deltas) > 1 else 0.0
        return replace(options, n_slow=int(np.sum(self.mean_deltas(self.best) + error < self.noise)))

    def mean_deltas(self, i: int, *, training: bool = False) -> Floats:
        """(k,) Delta values with shrinkage i, means over divisions; infinite for features that are nowhere."""
        deltas = (self.training_delta_values if training else self.delta_values)[i]
        there = ~np.isnan(deltas)
        count = there.sum(axis=0)
        return np.where(count > 0, np.where(there, deltas, 0.0).sum(axis=0) / np.maximum(count, 1), np.inf)


def peak(ladder: Floats, evidence: Floats) -> float:
    """Where a parabola through the best value and its neighbours, over the logarithm of values, has its highest point.

    Two digits of it, so that rounding errors do not show. The best value itself at the ends of the ladder, and beside
    0, which has no logarithm.
    """
    i = int(np.argmax(evidence))
    if not 1 < i < len(ladder) - 1:
        return float(ladder[i])
    x, y = np.log(ladder[i - 1 : i + 2] / ladder[i]), evidence[i - 1 : i + 2] - evidence[i]
    a, b = np.linalg.solve(np.stack([x[::2] ** 2, x[::2]], axis=1), y[::2])
    return float(f"{ladder[i] * np.exp(-b / (2.0 * a)):.2g}") if a < 0 else float(ladder[i])


def noise_level(graphs: Sequence[TrainingGraph]) -> float:
    r"""Delta of noise, the mean over graphs, at most 2.

    A sample is as near to itself as can be, so pairs of samples with themselves, which graphs of low rank and classes
    with self-loops have, make noise look slow where there are few samples. With the total weight S of such pairs, R of
    all edges, and :math:`1 / n = \sum v^2 / Q^2`, centred white noise has :math:`2 (1 - S / R) / (1 - 1 / n)`, exactly
    in the mean where degrees are in proportion to vertex weights.
    """
    levels = []
    for graph in graphs:
        v, R = graph.vertex_weights, graph.total_edge_weight
        own = sum(part.edges.self_weight for part in graph.parts)
        if not R > 0:  # no sample has a label
            continue
        share = float(v @ v) / float(v.sum()) ** 2
        levels.append(2.0 * (1.0 - own / R) / (1.0 - share) if share < 1.0 else 2.0)
    return min(2.0, float(np.mean(levels))) if levels else 2.0


def n_judged(n_expanded: int, options: NodeOptions) -> int:
    """Number of features that a value of the shrinkage is judged by."""
    most = min(n_expanded, MOST_FEATURES, n_expanded if options.n_components is None else options.n_components)
    is_known = options.preserve and options.n_slow not in (None, AUTO)
    return max(1, min(most, int(options.n_slow))) if is_known else most


def cross_validated(
    divisions: Sequence[tuple[Covariances, Covariances]], n_expanded: int, options: NodeOptions, noise: float = 2.0
) -> tuple[NodeOptions, HeldOut, HeldOut]:
    """Options filled in, how all values of the shrinkage did, and how the chosen one did on all features.

    The size of the slow part is counted on unseen samples.
    """
    path = held_out(divisions, n_expanded, n_judged(n_expanded, options), options, noise)
    n = n_expanded if options.n_components is None else min(n_expanded, options.n_components)
    final = path.only_best()
    if n > path.delta_values.shape[2]:
        final = held_out(divisions, n_expanded, n, replace(options, shrinkage=float(path.ladder[path.best])), noise)
    options = final.chosen(options)
    if options.preserve and options.n_slow is None and options.delta_threshold < 4.0:
        options = replace(options, n_slow=n_slow_features(final.mean_deltas(0), n_expanded, options))
    return options, path, final


def joined(parts: Sequence[HeldOut]) -> HeldOut:
    """Divisions of several nodes, one after the other."""
    return HeldOut(
        parts[0].ladder,
        np.concatenate([part.slowness for part in parts], axis=1),
        np.concatenate([part.information for part in parts], axis=1),
        np.concatenate([part.delta_values for part in parts], axis=1),
        np.concatenate([part.training_delta_values for part in parts], axis=1),
        parts[0].noise,
    )


def held_out(
    divisions: Sequence[tuple[Covariances, Covariances]],
    n_expanded: int,
    n_features: int,
    options: NodeOptions,
    noise: float = 2.0,
) -> HeldOut:
    """Train on the first covariances of each division, measure on the second, for every value of the shrinkage."""
    ladder = LADDER if options.shrinkage == AUTO else (float(options.shrinkage),)
    limit = options.delta_threshold if options.preserve and options.n_slow is None else np.inf
    shape = (len(ladder), len(divisions), n_features)
    deltas, training = np.full(shape, np.nan), np.full(shape, np.nan)
    slowness, information = np.zeros(shape[:2]), np.zeros(shape[:2])
    for k, (train, test) in enumerate(divisions):
        C, C_dot = (whole(M[:n_expanded, :n_expanded]) for M in (test.C, test.C_dot))
        least = test.noise[:n_expanded]
        pencil = None
        for i, shrinkage in enumerate(ladder):
            wanted = shrinkage, n_features, n_features, limit
            slow = slow_features(train, n_expanded, *wanted, pencil=pencil, is_path=len(ladder) > 1)
            B, pencil = slow.B, slow.pencil
            variances, edges = B.T @ C @ B, B.T @ C_dot @ B
            varies = np.diag(variances) > least @ B**2
            n = B.shape[1]
            deltas[i, k, :n] = np.where(varies, np.diag(edges) / np.where(varies, np.diag(variances), 1.0), 2.0)
            training[i, k, :n] = slow.delta_values[:n]
            new = decorrelating(variances, least @ B**2)
            share = np.clip(np.einsum("ij,ij->j", new, edges @ new) / 2.0, LEAST_SHARE, 1.0)  # of the variance, noise
            if limit < np.inf:
                share = share[: n_slow_features(training[i, k, :n], n_expanded, options)]
            slowness[i, k], information[i, k] = np.sum(1.0 - share), -np.sum(np.log(share)) / 2.0
    return HeldOut(np.array(ladder), slowness, information, deltas, training, noise)
