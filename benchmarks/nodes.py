"""One node of each layer of the paper's network against the bare matrix product of its expanded size.

A node is trained as the network trains it: tile after tile its field is gathered, expanded and added to the sums; then
it is solved, and its features are computed for the layer above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from _data import THREE_LABELS, pictures
from _timing import Task, take_turns

from higsfa import presets
from higsfa.core.node.frontend import Projection
from higsfa.core.sums.accumulate import NodeSums
from higsfa.core.sums.plan import make_plan
from higsfa.core.sums.tile import Tile
from higsfa.training.budget import NETWORK_TILE
from higsfa.training.gather import gather
from higsfa.training.layer import LayerPlan, statistics_of
from higsfa.training.network import NETWORK_BLOCK
from higsfa.training.statistics import GraphStatistics
from higsfa.training.stores import Schedule, field_of

FLOAT = np.dtype(np.float32)


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples with three labels, cut into tiles, and a signal that tells the first label."""

    schedule: Schedule
    signal: np.ndarray

    @classmethod
    def of(cls, n: int) -> Samples:
        _, labels = pictures(n, 8)
        schedule = Schedule(make_plan(THREE_LABELS.build(labels), NETWORK_BLOCK), NETWORK_TILE)
        return cls(schedule, np.cos(np.pi * (labels["age"] - 16) / 61).astype(FLOAT))

    def features(self, plan: LayerPlan, rng: np.random.Generator) -> list[list[np.ndarray]]:
        """What the first node of a layer sees of every tile: noise, the signal in the first output of each child."""

        def draw(tile: Tile) -> np.ndarray:
            block = rng.standard_normal((plan.fields.children, plan.width, len(tile.rows)), FLOAT)
            block[:, 0] += self.signal[tile.rows]
            return block

        return [[draw(tile) for tile in tiles] for tiles in self.schedule.blocks]

    def pixels(self, plan: LayerPlan, rng: np.random.Generator) -> list[list[np.ndarray]]:
        """The same as grey values."""
        return [
            [np.clip(128 + 40 * block, 0, 255).astype(np.uint8) for block in blocks]
            for blocks in self.features(plan, rng)
        ]


def node_tasks(plan: LayerPlan, samples: Samples, *, pixels: bool = False) -> dict[str, Task]:
    """What is done for the first node of a layer, on features of the layer below or on pixels."""
    rng, schedule, index = np.random.default_rng(0), samples.schedule, np.arange(plan.fields.children)
    inputs = samples.pixels(plan, rng) if pixels else samples.features(plan, rng)
    projection = None
    if plan.pca is not None:
        rotation = np.linalg.qr(rng.standard_normal((plan.n_raw, plan.n_raw)))[0]
        projection = Projection(rotation[: plan.n_inputs], np.full(plan.n_raw, 128.0))
    frontend = plan.frontend(0.1 * rng.standard_normal(plan.n_inputs), projection)
    shift = np.zeros(frontend.n_variables)

    def solve(statistics: GraphStatistics) -> Any:
        return statistics.solve(plan.options, clip_range=plan.clip_range)

    def fields(tiles: Any, blocks: Any) -> Any:
        for tile, block in zip(tiles, blocks, strict=True):
            yield tile, lambda _, block=block: field_of(block, index)

    def add_up() -> GraphStatistics:
        sums = NodeSums(frontend, schedule.plan, FLOAT, shift=shift)
        pairs = zip(schedule.blocks, inputs, strict=True)
        gather([sums], ((number, fields(*pair)) for number, pair in enumerate(pairs)))
        return statistics_of(sums, float(np.finfo(FLOAT).eps))

    statistics = add_up()
    node = solve(statistics)

    out = np.empty((plan.n_components, NETWORK_TILE), FLOAT)

    def encode() -> None:
        for blocks in inputs:
            for block in blocks:
                node.encode(field_of(block, index), out[:, : block.shape[2]])

    Z = rng.standard_normal((sum(schedule.samples), frontend.n_variables), FLOAT)
    return {
        "bare": lambda: Z.T @ Z,
        "sums": add_up,
        "features": encode,
        "solve": lambda: solve(statistics),
    }


def layers(n: int, rounds: int) -> list[dict[str, Any]]:
    """One node of every layer of the paper's network."""
    samples, rows = Samples.of(n), []
    for number, plan in enumerate(presets.higsfa_g3()._planned((96, 96)), 1):
        timings = take_turns(node_tasks(plan, samples, pixels=number == 1), rounds)
        bare, T = timings["bare"], plan.frontend_size
        rows.append(
            {
                "layer": number,
                "nodes": plan.fields.n_nodes,
                "expanded": T,
                "bare_us": 1e6 * bare.best / n,
                "sums_us": 1e6 * timings["sums"].best / n,
                "features_us": 1e6 * timings["features"].best / n,
                "sums_ratio": timings["sums"].over(bare),
                "features_ratio": timings["features"].over(bare),
                "ratio": timings["sums"].over(bare) + timings["features"].over(bare),
                "solve_ms": 1e3 * timings["solve"].best,
                "sums_mib": 8 * samples.schedule.plan.n_channels * T * T / 2**20,
                "spread": bare.spread,
            }
        )
    return rows
