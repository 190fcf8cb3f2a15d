"""The samples that are points of a node's kernel."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansion.kernel import n_points
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.node import Node
from higsfa.core.node.solve import NodeOptions
from higsfa.core.node.span import with_points, written_out
from higsfa.training.sources.base import evenly_spread
from higsfa.training.statistics import GraphStatistics
from higsfa.training.stores import Block, field_of


def frontends_with_points(gathering: Any, frontends: tuple[Frontend, ...]) -> tuple[Frontend, ...]:
    """The same; the kernel of a single node, if it has one, gets samples as points, evenly spread over all of them."""
    plan = gathering.plan
    n = n_points(plan.expansion.terms)
    if not n:
        return frontends
    return (with_points(frontends[0], field_of(gathering.some(n), plan.fields.index[0])),)


def solved(statistics: GraphStatistics, options: NodeOptions, clip_range: bool) -> Node:
    """The node of these statistics, with weights for its kernel if it has one."""
    return written_out(statistics.solve(options, clip_range=clip_range))


def spread_over(samples: list[int], n: int) -> list[NDArray[np.intp]]:
    """Places of n samples, evenly spread over all of them, in each of some parts with so many samples."""
    ends = np.cumsum([0, *samples])
    which = evenly_spread(int(ends[-1]), n)
    return [which[(which >= lo) & (which < hi)] - lo for lo, hi in pairwise(ends.tolist())]


def some_features(tile: Callable[[int], Block], samples: list[int], n: int) -> Block:
    """Features of n samples, given those of each tile; `samples` is how many each has."""
    parts = spread_over(samples, n)
    return np.concatenate([tile(t)[:, :, part] for t, part in enumerate(parts) if len(part)], axis=2)
