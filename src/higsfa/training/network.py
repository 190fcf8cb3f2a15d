"""A whole network: what to keep in memory, what to compute again, and the loop over layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.sums.plan import make_plan
from higsfa.training.checkpoints import Checkpoint, LayerStore
from higsfa.training.dask_engine import cluster_client, train_on_dask
from higsfa.training.features import Schedule, raw_features
from higsfa.training.layer import LayerPlan, TrainedLayer
from higsfa.training.runner import Runner, threads
from higsfa.training.stores import FileShelf, MemoryShelf, Shelf, free_bytes, spill_folder
from higsfa.training.train_layer import ThreadGathering, computed_features, train_layer

NETWORK_BLOCK = 16384
"""Samples in a block of a network: small enough to be spread over workers."""
NETWORK_TILE = 2048
"""Most samples in a tile of a network."""
TILE_MEMORY = 2**28
"""Bytes that the features of one tile may take, over all nodes of a layer."""


@dataclass(frozen=True)
class LayerBudget:
    """What training a layer takes.

    Attributes
    ----------
    feature_bytes : features of the layer for all samples.
    sum_bytes : sums of one node.
    place : where the features wait for the next pass: "memory", "disk", or "nowhere" if they are computed again.
    nodes_at_once : nodes whose sums grow side by side.
    work : multiply-adds of the matrix products, for all samples.
    """

    feature_bytes: int
    sum_bytes: int
    place: str
    nodes_at_once: int
    work: float


@dataclass(frozen=True)
class Budget:
    """The plan of a fit: what is kept where, how much memory and disk at most, how many passes over the data."""

    input_place: str
    layers: tuple[LayerBudget, ...]
    memory: int
    disk: int
    passes: int
    work: float

    def __str__(self) -> str:
        kept = sum(layer.place == "memory" for layer in self.layers)
        spilled = sum(layer.place == "disk" for layer in self.layers)
        return (
            f"memory about {self.memory / 2**20:,.0f} MiB, {self.passes} passes over the input, "
            f"{self.work / 1e12:,.3f} T multiply-adds; features of {kept} of {len(self.layers)} layers kept in memory"
            + (f", of {spilled} on disk ({self.disk / 2**30:,.1f} GiB)" if self.disk else "")
        )


def tile_size(plans: list[LayerPlan], n_pixels: int, itemsize: int) -> int:
    """Samples in a tile: 2,048, or fewer where the widest layer would take too much memory."""
    widest = max([n_pixels] + [plan.fields.n_nodes * plan.n_components for plan in plans])
    fitting = max(1, TILE_MEMORY // (widest * itemsize))
    return min(NETWORK_TILE, max(64, 1 << (fitting.bit_length() - 1)))


def make_budget(
    plans: list[LayerPlan],
    n_samples: int,
    n_pixels: int,
    input_itemsize: int,
    itemsize: int,
    n_channels: int,
    n_atoms: int,
    n_blocks: int,
    n_jobs: int,
    limit: int,
    disk: int = 0,
) -> Budget:
    """Decide what to keep where, so that `limit` bytes of memory and `disk` bytes of disk are not exceeded.

    A ValueError if that cannot be done.
    """
    rows = min(n_samples, tile_size(plans, n_pixels, itemsize))
    levels = 1 + ceil(log2(max(1, n_blocks)))
    input_bytes = n_samples * n_pixels * input_itemsize
    widest = max([n_pixels] + [plan.fields.n_nodes * plan.n_components for plan in plans])
    working = 3 * rows * widest * itemsize + n_jobs * 4 * rows * itemsize * max(p.frontend_size for p in plans)
    place = "memory" if input_bytes + working <= limit // 2 else "disk" if input_bytes <= disk else "nowhere"
    input_place = place
    held = {"memory": 0, "disk": 0, "nowhere": 0}
    held[place] = input_bytes
    lagging = dict.fromkeys(held, 0)  # what features are computed from during the next pass, and not needed after it
    peak, peak_disk, passes = held["memory"] + working, held["disk"], 1
    layers = []
    for k, plan in enumerate(plans):
        T, nodes = plan.frontend_size, plan.fields.n_nodes
        sums = 8 * ((n_channels + 3) * T * T + (n_channels + n_atoms) * T)
        features = n_samples * nodes * plan.n_components * itemsize
        unknown = k == 0 or plans[k - 1].shared  # means of the inputs are not known beforehand
        first_pass = plan.pca is not None or (unknown and not plan.expansion.is_linear)
        room = limit - held["memory"] - working
        least = nodes if plan.shared else 1
        below_kept = place != "nowhere"
        if below_kept:
            at_once, copies = (nodes if plan.shared else n_jobs), levels + 1
        else:
            at_once, copies = min(nodes, max(room, 0) // (sums * levels)), levels
            passes += (ceil(nodes / max(at_once, 1)) + first_pass) if k or input_place == "nowhere" else 0
        need = at_once * sums * copies
        if at_once < least or need > room:
            if disk:  # nodes trained one after the other need less memory if what they read is computed again
                return make_budget(
                    plans, n_samples, n_pixels, input_itemsize, itemsize, n_channels, n_atoms, n_blocks, n_jobs, limit
                )
            raise ValueError(
                f"memory: {limit / 2**20:.1f} MiB are not enough to train layer {k + 1} "
                f"({nodes} nodes of {T} variables); "
                f"at least {_mib(held['memory'] + working + max(least, at_once) * sums * copies)} are"
            )
        place = "nowhere"
        if k + 1 < len(plans):
            if held["memory"] + features + working + need <= limit:
                place = "memory"
            elif held["disk"] + features <= disk:
                place = "disk"
        peak = max(peak, held["memory"] + working + need + (features if place == "memory" else 0))
        peak_disk = max(peak_disk, held["disk"] + (features if place == "disk" else 0))
        work = float(n_samples) * nodes * (T * T / 2 + plan.n_components * (T + plan.n_inputs))
        layers.append(LayerBudget(features, sums, place, at_once, work))
        held = {name: held[name] - lagging[name] for name in held}
        lagging = dict.fromkeys(held, 0)
        if place != "nowhere":
            if below_kept and not plan.shared:
                held = dict.fromkeys(held, 0)
            else:
                lagging = held.copy()
            held[place] += features
    work = sum(layer.work for layer in layers)
    return Budget(input_place, tuple(layers), int(peak), int(peak_disk), passes, work)


def _mib(n_bytes: int) -> str:
    return f"{ceil(n_bytes / 2**20)} MiB"


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
    read : rows of the data by number, (n,) -> (n, ...), of type `input_dtype`.
    dtype : precision of the products.
    limit : memory budget in bytes.
    on_layer : called with the number of a layer and its number of node-tiles; returns a function that is called with
        the number of node-tiles done.
    engine : "threads" or "dask".
    client : of a Dask cluster; the active one, or one for a cluster on this machine, if None.
    spill : folder for features that do not fit in memory, None to choose one, False for none.
    checkpoint : where to leave what is finished, and to go on from.
    """
    n_pixels = int(np.prod(plans[0].fields.grid)) * plans[0].width
    plan = make_plan(graph, NETWORK_BLOCK)
    schedule = Schedule.of(plan, tile_size(plans, n_pixels, dtype.itemsize))
    if engine == "dask":
        with cluster_client(client, n_jobs) as cluster:
            return train_on_dask(
                plans, read, schedule, dtype, cluster, limit=limit, on_layer=on_layer, checkpoint=checkpoint
            )
    folder = spill_folder(spill)
    budget = make_budget(
        plans,
        sum(schedule.samples),
        n_pixels,
        input_dtype.itemsize,
        dtype.itemsize,
        plan.n_channels,
        plan.n_atoms,
        plan.n_blocks,
        n_jobs,
        limit,
        disk=free_bytes(folder),
    )
    by_blocks = NETWORK_BLOCK * n_pixels * input_dtype.itemsize <= limit // 4
    with _memory_explained(budget, limit), threads(n_jobs) as run:
        return _train_layers(
            plans, read, schedule, input_dtype, dtype, budget, run, folder, on_layer, checkpoint, by_blocks=by_blocks
        )


@contextmanager
def _memory_explained(budget: Budget, limit: int) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise MemoryError(
            f"memory: {_mib(limit)} were allowed and about {_mib(budget.memory)} planned for, but the system does not "
            f"give as much ({str(error) or 'out of memory'}); pass a smaller size, such as "
            f"memory='{_mib(limit // 2)}', or fewer n_jobs"
        ) from error


def _train_layers(
    plans: list[LayerPlan],
    read: Callable[[NDArray[np.intp]], NDArray[Any]],
    schedule: Schedule,
    input_dtype: np.dtype[Any],
    dtype: np.dtype[Any],
    budget: Budget,
    run: Runner,
    folder: Path | None,
    on_layer: Callable[[int, int], Callable[[int], None]],
    checkpoint: Checkpoint | None,
    *,
    by_blocks: bool,
) -> list[TrainedLayer]:
    """The layers one after the other, on threads; those that a checkpoint holds are not trained again."""
    n_pixels, channels = int(np.prod(plans[0].fields.grid)), plans[0].width
    shelf = _shelf(budget.input_place, n_pixels, channels, schedule, input_dtype, folder)
    # No one else may refer to features: what the next layer does not need is gone when the name is taken again.
    features = raw_features(read, schedule, channels, shelf, run, by_blocks=by_blocks)
    layers: list[TrainedLayer] = []
    means = None
    for k, (plan, share) in enumerate(zip(plans, budget.layers, strict=True)):
        nodes, n_tiles = plan.fields.n_nodes, len(schedule.tiles)
        on_node = on_layer(k, nodes * n_tiles)
        shelf = _shelf(share.place, nodes, plan.n_components, schedule, dtype, folder)
        known = None if checkpoint is None else checkpoint.load_layer(k, plan)
        if known is None:
            features.fill()
            store = None if checkpoint is None else LayerStore(checkpoint, k, plan, schedule)
            layer, features = train_layer(
                ThreadGathering(plan, features, schedule, dtype, run, share.nodes_at_once, on_node, store), means, shelf
            )
            if checkpoint is not None:
                checkpoint.save_layer(k, layer)
        else:
            layer, features = known, computed_features(known, features, shelf, dtype, run)
            on_node(nodes * n_tiles)
        layers.append(layer)
        means = layer.output_means
    return layers


def _shelf(
    place: str, nodes: int, width: int, schedule: Schedule, dtype: np.dtype[Any], folder: Path | None
) -> Shelf | None:
    if place == "memory":
        return MemoryShelf(nodes, width, schedule.samples, dtype)
    if place == "disk":
        assert folder is not None
        return FileShelf(nodes, width, schedule.samples, dtype, folder)
    return None
