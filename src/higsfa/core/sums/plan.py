"""From a graph to its plan: numbered blocks of samples, and in them tiles.

Blocks have a fixed size, whatever the batches that the data came in, and block sums are merged in a fixed tree: this is
why threads, workers and restarts cannot change a bit of the result. Graphs made of groups are cut into cells of equal
weights; graphs with edges along an order keep that order, and each tile brings along the samples that its edges reach
(its halo).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.edges import ChainEdges, GroupEdges
from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.sums.ordered import OrderedPlan
from higsfa.core.sums.tile import CellPlan, Plan, Weighting

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

BLOCK = 16384
"""Samples in a block: enough that the cells of a graph for several labels fill tiles, and few enough that rows which
are read cell by cell lie close together and products may be added up in single precision."""


def make_plan(graph: TrainingGraph, block: int = BLOCK) -> Plan:
    """Cut the samples of a graph into blocks of a fixed size, and blocks into tiles."""
    groups = [part.edges for part in graph.parts if isinstance(part.edges, GroupEdges)]
    kind = CellPlan if len(groups) == len(graph.parts) else OrderedPlan
    return kind.of(graph, groups, block)


def class_plan(classes: Ints, n_classes: int, w: Floats) -> Plan:
    """A plan with one channel per class, for graphs whose weights are known only when all classes have been counted.

    Channel 0 is for samples without a class.
    """
    K = n_classes + 1
    varying = None if np.all(w == w[:1]) else w
    return CellPlan(
        weighting=Weighting(np.eye(K), (), 0.0),
        n_channels=K,
        n_atoms=0,
        n_blocks=-(-len(classes) // BLOCK),
        fine=(classes + 1).astype(np.uint16 if K < 2**16 else np.intp),
        cell=np.arange(K),
        channels=np.eye(K) * (w[:1] if varying is None else 1.0),
        atom_rows=np.zeros((0, K), dtype=np.intp),
        sample_weight=np.ones(K),
        block=BLOCK,
        varying=varying,
    )


def sequence_plan(n_before: int, graph: TrainingGraph) -> Plan:
    """A plan for part of a sequence whose first `n_before` samples were summed before; only their edges count."""
    weights = np.ones((1, graph.n_samples))
    weights[:, :n_before] = 0.0
    (part,) = graph.parts
    assert isinstance(part.edges, ChainEdges)
    return OrderedPlan(
        weighting=Weighting(np.ones((3, 1)), (), 0.0),
        n_channels=1,
        n_atoms=0,
        n_blocks=-(-graph.n_samples // BLOCK),
        has_edges=True,
        order=None,
        n_samples=graph.n_samples,
        channels=weights,
        atom_rows=np.zeros((0, graph.n_samples), dtype=np.intp),
        sample_weight=weights[0],
        local=((part.edges, True),),
        block=BLOCK,
    )
