"""A whole network, trained layer by layer, bottom up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.sums.plan import BLOCK, make_plan
from higsfa.training.budget import Budget, Workload, make_budget, mib, tile_size
from higsfa.training.checkpoints import Checkpoint, LayerProgress
from higsfa.training.dask_engine import cluster_client, train_on_dask
from higsfa.training.layer import LayerPlan, ThreadGathering, TrainedLayer, computed_features, train_layer
from higsfa.training.runner import threads
from higsfa.training.stores import (
    Features,
    Schedule,
    Store,
    free_bytes,
    make_store,
    raw_features,
    spill_folder,
)

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
    width = plans[0].width
    n_pixels = int(np.prod(plans[0].fields.grid)) * width
    plan = make_plan(graph, NETWORK_BLOCK)
    schedule = Schedule.of(plan, tile_size(plans, n_pixels, dtype.itemsize))
    if engine == "dask":
        with cluster_client(client, n_jobs) as cluster:
            return train_on_dask(
                plans, read, schedule, dtype, cluster, limit=limit, on_layer=on_layer, checkpoint=checkpoint
            )
    folder = spill_folder(spill)
    samples, sizes = schedule.samples, (plan.n_channels, plan.n_atoms, plan.n_blocks, n_jobs)
    work = Workload(tuple(plans), sum(samples), n_pixels, input_dtype.itemsize, dtype.itemsize, *sizes)
    budget = make_budget(work, limit, disk=free_bytes(folder))

    with _memory_explained(budget, limit), threads(n_jobs) as run:
        # Nothing else may refer to features: what the next layer does not need is freed when the name is taken again.
        features = raw_features(
            read,
            schedule,
            width,
            make_store(budget.input_place, n_pixels // width, width, samples, input_dtype, folder),
            run,
            by_blocks=NETWORK_BLOCK * n_pixels * input_dtype.itemsize <= limit // 4,
        )
        layers: list[TrainedLayer] = []
        for k, (layer_plan, share) in enumerate(zip(plans, budget.layers, strict=True)):
            on_node = on_layer(k, layer_plan.fields.n_nodes * len(schedule.tiles))
            n_nodes, n_components = layer_plan.fields.n_nodes, layer_plan.n_components
            store = make_store(share.place, n_nodes, n_components, samples, dtype, folder)
            gathering = ThreadGathering(layer_plan, features, schedule, dtype, run, share.nodes_at_once, on_node)
            layer, features = _train_layer(k, gathering, layers, store, checkpoint)
            del gathering
            layers.append(layer)
    return layers


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
        gathering.on_node(plan.fields.n_nodes * len(schedule.tiles))
        return known, computed_features(known, features, store, gathering.dtype, gathering.run)
    features.fill()
    if checkpoint is not None:
        gathering = replace(gathering, saved=LayerProgress(checkpoint, k, plan, schedule))
    layer, features = train_layer(gathering, below[-1].output_means if below else None, store)
    if checkpoint is not None:
        checkpoint.save_layer(k, layer)
    return layer, features


@contextmanager
def _memory_explained(budget: Budget, limit: int) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise MemoryError(
            f"memory_limit: {mib(limit)} were allowed and about {mib(budget.memory)} planned for, but the system does "
            f"not give as much ({str(error) or 'out of memory'}); pass a smaller size, such as "
            f"memory_limit='{mib(limit // 2)}', or fewer n_jobs"
        ) from error
