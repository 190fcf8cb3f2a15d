"""A whole network, trained layer by layer, bottom up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.sums.plan import BLOCK, make_plan
from higsfa.training.budget import Budget, Workload, are_short, make_budget, memory_explained, tile_size
from higsfa.training.dask_engine import cluster_client, train_on_dask
from higsfa.training.layer import LayerPlan, ThreadGathering, TrainedLayer, computed_features, train_layer
from higsfa.training.runner import Runner, threads
from higsfa.training.stores import (
    Features,
    Schedule,
    Store,
    free_bytes,
    make_store,
    raw_features,
    spill_folder,
)

if TYPE_CHECKING:  # they check what they read by pydantic, which takes long to import
    from higsfa.training.checkpoints import Checkpoint

NETWORK_BLOCK = BLOCK
"""Samples in a block of a network: small enough to be spread over workers."""


def train_network(
    plans: list[LayerPlan],
    read: Callable[[NDArray[np.intp]], NDArray[Any]],
    graph: TrainingGraph,
    input_dtype: np.dtype[Any],
    dtype: np.dtype[Any],
    *,
    n_jobs: int,
    limit: int,
    on_layer: Callable[[int, int], Callable[[int], None]],
    engine: str = "threads",
    client: Any = None,
    spill: Any = None,
    checkpoint: Checkpoint | None = None,
) -> list[TrainedLayer]:
    """Train all layers, bottom up.

    Parameters
    ----------
    read : rows of the data by index, (n,) -> (n, ...), of dtype `input_dtype`.
    dtype : precision of the products.
    limit : memory budget in bytes.
    on_layer : called with the index of a layer and its number of node-tiles; returns a function that is called with
        the number of node-tiles done.
    engine : "threads" or "dask".
    client : of a Dask cluster; the active one, or one for a cluster on this machine, if None.
    spill : folder for features that do not fit in memory, None to choose one, False for none.
    checkpoint : where to leave what is finished, and to go on from.
    """
    rows, short = tile_size(plans, plans[0].n_below, dtype.itemsize), are_short(plans, graph.n_samples, dtype.itemsize)
    schedule = Schedule(make_plan(graph, NETWORK_BLOCK), rows, short)
    if engine == "dask":
        with cluster_client(client, n_jobs) as cluster:
            return train_on_dask(
                plans, read, schedule, dtype, cluster, limit=limit, on_layer=on_layer, checkpoint=checkpoint
            )
    with set_up(plans, schedule, input_dtype, dtype, n_jobs=n_jobs, limit=limit, spill=spill) as setup:
        # Nothing else may refer to features: what the next layer does not need is freed when the name is taken again.
        features = setup.inputs(read)
        layers: list[TrainedLayer] = []
        for k, layer_plan in enumerate(plans):
            on_node = on_layer(k, layer_plan.n_trained * len(schedule.tiles))
            gathering = setup.gathering(k, features, on_node)
            layer, features = _train_layer(k, gathering, layers, setup.store(k), checkpoint)
            del gathering
            layers.append(layer)
    return layers


@dataclass(frozen=True, eq=False)
class Setup:
    """What passes over the data need: tiles, a budget, threads, a folder for what does not fit in memory."""

    plans: list[LayerPlan]
    schedule: Schedule
    input_dtype: np.dtype[Any]
    dtype: np.dtype[Any]
    limit: int
    budget: Budget
    folder: Path | None
    run: Runner

    def inputs(self, read: Callable[[NDArray[np.intp]], NDArray[Any]]) -> Features:
        """Raw input."""
        width, n_pixels = self.plans[0].width, self.plans[0].n_below
        samples, place = self.schedule.samples, self.budget.input_place
        store = make_store(place, n_pixels // width, width, samples, self.input_dtype, self.folder)
        by_blocks = NETWORK_BLOCK * n_pixels * self.input_dtype.itemsize <= self.limit // 4
        return raw_features(read, self.schedule, width, store, self.run, by_blocks=by_blocks)

    def store(self, k: int) -> Store | None:
        """For the features of layer k."""
        plan, place = self.plans[k], self.budget.layers[k].place
        sizes = plan.fields.n_nodes, plan.n_components, self.schedule.samples
        return make_store(place, *sizes, self.dtype, self.folder, short=self.schedule.short)

    def gathering(self, k: int, features: Features, on_node: Callable[[int], None] = lambda _: None) -> ThreadGathering:
        """A pass over the features below layer k."""
        at_once = self.budget.layers[k].nodes_at_once
        return ThreadGathering(self.plans[k], features, self.schedule, self.dtype, self.run, at_once, on_node)


@contextmanager
def set_up(
    plans: list[LayerPlan],
    schedule: Schedule,
    input_dtype: np.dtype[Any],
    dtype: np.dtype[Any],
    *,
    n_jobs: int,
    limit: int,
    spill: Any = None,
) -> Iterator[Setup]:
    """Decide what is kept where, and start threads."""
    folder, plan = spill_folder(spill), schedule.plan
    sizes = plan.n_channels, plan.n_atoms, plan.n_blocks, n_jobs
    size = sum(schedule.samples), plans[0].n_below, input_dtype.itemsize, dtype.itemsize
    work = Workload(tuple(plans), *size, *sizes, short=schedule.short)
    budget = make_budget(work, limit, disk=free_bytes(folder))
    with memory_explained(budget, limit), threads(n_jobs) as run:
        yield Setup(plans, schedule, input_dtype, dtype, limit, budget, folder, run)


def _train_layer(
    k: int,
    gathering: ThreadGathering,
    below: list[TrainedLayer],
    store: Store | None,
    checkpoint: Checkpoint | None,
) -> tuple[TrainedLayer, Features]:
    """Layer k and its features, on threads; one that a checkpoint holds is not trained again."""
    plan, features, schedule = gathering.plan, gathering.below, gathering.schedule
    known = None if checkpoint is None else checkpoint.load_layer(k, plan)
    if known is not None:
        gathering.on_node(plan.n_trained * len(schedule.tiles))
        return known, computed_features(known, features, store, gathering)
    features.fill()
    if checkpoint is not None:
        from higsfa.training.checkpoints import LayerProgress

        gathering = replace(gathering, saved=LayerProgress(checkpoint, k, plan, schedule))
    layer, features = train_layer(gathering, below[-1].output_means if below else None, store)
    if checkpoint is not None:
        checkpoint.save_layer(k, layer)
    return layer, features
