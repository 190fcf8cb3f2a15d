"""A whole network: what to keep in memory, what to compute again, and the loop over layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph import TrainingGraph
from higsfa.core.tiles import make_plan
from higsfa.training.checkpoints import Checkpoint, LayerStore
from higsfa.training.dask_engine import cluster_client, train_on_dask
from higsfa.training.features import Features, Schedule, raw_features
from higsfa.training.layers import LayerPlan, TrainedLayer, threads
from higsfa.training.network import ThreadGathering, computed_features, train_layer

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
    kept : whether the features are held in memory for the next pass.
    nodes_at_once : nodes whose sums grow side by side.
    work : multiply-adds of the matrix products, for all samples.
    """

    feature_bytes: int
    sum_bytes: int
    kept: bool
    nodes_at_once: int
    work: float


@dataclass(frozen=True)
class Budget:
    """The plan of a fit: what is kept, how much memory at most, how many passes over the data, how much work."""

    keep_input: bool
    layers: tuple[LayerBudget, ...]
    memory: int
    passes: int
    work: float

    def __str__(self) -> str:
        kept = sum(layer.kept for layer in self.layers)
        return (
            f"memory about {self.memory / 2**20:,.0f} MiB, {self.passes} passes over the input, "
            f"{self.work / 1e12:,.3f} T multiply-adds; features of {kept} of {len(self.layers)} layers kept in memory"
        )


def tile_size(plans: list[LayerPlan], n_pixels: int, itemsize: int) -> int:
    """Samples in a tile: 2,048, or fewer where the widest layer would take too much memory."""
    widest = max([n_pixels] + [plan.fields.n_nodes * plan.n_components for plan in plans])
    fitting = max(1, TILE_MEMORY // (widest * itemsize))
    return int(np.clip(1 << (fitting.bit_length() - 1), 64, NETWORK_TILE))


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
) -> Budget:
    """Decide what to keep, so that `limit` bytes are not exceeded; a ValueError if that cannot be done."""
    rows = min(n_samples, tile_size(plans, n_pixels, itemsize))
    levels = 1 + ceil(log2(max(1, n_blocks)))
    input_bytes = n_samples * n_pixels * input_itemsize
    widest = max([n_pixels] + [plan.fields.n_nodes * plan.n_components for plan in plans])
    working = 3 * rows * widest * itemsize + n_jobs * 4 * rows * itemsize * max(p.frontend_size for p in plans)
    keep_input = input_bytes + working <= limit // 2
    held = input_bytes if keep_input else 0
    peak, passes = held + working, 1
    below_kept, lagging = keep_input, 0
    layers = []
    for k, plan in enumerate(plans):
        T, nodes = plan.frontend_size, plan.fields.n_nodes
        sums = 8 * ((n_channels + 3) * T * T + (n_channels + n_atoms) * T)
        features = n_samples * nodes * plan.n_components * itemsize
        unknown = k == 0 or plans[k - 1].shared  # means of the inputs are not known beforehand
        first_pass = plan.pca is not None or (unknown and not plan.expansion.is_linear)
        room = limit - held - working
        least = nodes if plan.shared else 1
        if below_kept:
            at_once, copies = (nodes if plan.shared else n_jobs), levels + 1
        else:
            at_once, copies = int(min(nodes, max(room, 0) // (sums * levels))), levels
            passes += (ceil(nodes / max(at_once, 1)) + first_pass) if k or not keep_input else 0
        need = at_once * sums * copies
        if at_once < least or need > room:
            raise ValueError(
                f"memory: {limit / 2**20:.1f} MiB are not enough to train layer {k + 1} "
                f"({nodes} nodes of {T} variables); "
                f"at least {_mib(held + working + max(least, at_once) * sums * copies)} are"
            )
        keep = k + 1 < len(plans) and held + features + working + need <= limit
        peak = max(peak, held + working + need + (features if keep else 0))
        work = float(n_samples) * nodes * (T * T / 2 + plan.n_components * (T + plan.n_inputs))
        layers.append(LayerBudget(features, sums, keep, at_once, work))
        held -= lagging
        lagging = 0
        if keep and (below_kept and not plan.shared):
            held = features
        elif keep:  # computed during the next pass, so what they are computed from stays until then
            lagging, held = held, held + features
        below_kept = keep
    return Budget(keep_input, tuple(layers), int(peak), passes, sum(layer.work for layer in layers))


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
    tiles = schedule.tiles
    budget = make_budget(
        plans,
        sum(tile.n_rows for tile in tiles),
        n_pixels,
        input_dtype.itemsize,
        dtype.itemsize,
        plan.n_channels,
        plan.n_atoms,
        plan.n_blocks,
        n_jobs,
        limit,
    )
    layers: list[TrainedLayer] = []
    features: Features = raw_features(read, tiles, plans[0].width, keep=budget.keep_input)
    means = None
    with threads(n_jobs) as run:
        for k, (layer_plan, share) in enumerate(zip(plans, budget.layers, strict=True)):
            on_node = on_layer(k, layer_plan.fields.n_nodes * len(tiles))
            known = None if checkpoint is None else checkpoint.load_layer(k, layer_plan)
            if known is None:
                at_once = None if features.kept else share.nodes_at_once
                store = None if checkpoint is None else LayerStore(checkpoint, k, layer_plan, plan)
                gather = ThreadGathering(layer_plan, features, schedule, dtype, run, at_once, on_node, store)
                layer, features = train_layer(gather, means, keep=share.kept)
                if checkpoint is not None:
                    checkpoint.save_layer(k, layer)
            else:
                layer, features = known, computed_features(known, features, len(tiles), dtype, run, keep=share.kept)
                on_node(layer_plan.fields.n_nodes * len(tiles))
            layers.append(layer)
            means = layer.output_means
    return layers
