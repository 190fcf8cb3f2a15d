"""What a network leaves open, chosen layer by layer on samples that it has not seen.

A network is trained on half of the samples, and each of its layers is judged on the other half: no layer has seen those,
so what the layers below overfitted does not pass for a slow feature. The whole network is trained on all samples then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.held_out import HeldOut, held_out, joined, n_judged
from higsfa.core.sums.accumulate import PILOT, NodeSums
from higsfa.core.sums.plan import BLOCK, make_plan
from higsfa.core.sums.sums import Covariances
from higsfa.training.budget import Workload, make_budget, tile_size
from higsfa.training.gather import gather, in_blocks
from higsfa.training.layer import LayerPlan, ThreadGathering, computed_features, statistics_of, train_layer
from higsfa.training.runner import Runner, threads
from higsfa.training.sources import Source
from higsfa.training.sources.base import evenly_spread
from higsfa.training.statistics import add_fields
from higsfa.training.stores import Schedule, field_of, free_bytes, make_store, raw_features

MAX_SAMPLES = 20_000
"""Most samples of each half."""
MAX_NODES = 16
"""Nodes of a layer that are judged."""


@dataclass(eq=False)
class Half:
    """Half of the samples.

    Attributes
    ----------
    samples, graph : of this half.
    schedule : its tiles.
    features : of the layer below the present one.
    """

    samples: Source
    graph: TrainingGraph
    schedule: Any = None
    features: Any = None


def choose_options(
    plans: list[LayerPlan],
    halves: tuple[Half, Half],
    dtype: np.dtype[Any],
    *,
    n_jobs: int,
    limit: int,
    folder: Path | None,
    on_layer: Callable[[int, int], Callable[[int], None]],
) -> tuple[list[LayerPlan], list[HeldOut | None]]:
    """Plans with all options filled in, and how each layer did on unseen samples (None where nothing was open).

    Parameters
    ----------
    halves : one to train on, one to judge by.
    dtype : precision of the products.
    limit, folder : memory in bytes, and where features go that do not fit in.
    on_layer : as in :func:`higsfa.training.network.train_network`.
    """
    n_open = max(k for k, plan in enumerate(plans, 1) if plan.options.is_open)
    width, n_pixels = plans[0].width, int(np.prod(plans[0].fields.grid)) * plans[0].width
    rows, input_dtype = tile_size(plans, n_pixels, dtype.itemsize), halves[0].samples.dtype
    for half in halves:
        half.schedule = Schedule.of(make_plan(half.graph, BLOCK), rows)
    plan, n_samples = halves[0].schedule.plan, sum(sum(half.schedule.samples) for half in halves)
    sizes = (plan.n_channels, plan.n_atoms, plan.n_blocks, n_jobs)
    work = Workload(tuple(plans), n_samples, n_pixels, input_dtype.itemsize, dtype.itemsize, *sizes)
    budget = make_budget(work, limit, disk=free_bytes(folder))
    chosen, found, means = list(plans), [None] * len(plans), None
    with threads(n_jobs) as run:
        for half in halves:
            samples = half.schedule.samples
            store = make_store(budget.input_place, n_pixels // width, width, samples, input_dtype, folder)
            by_blocks = BLOCK * n_pixels * input_dtype.itemsize <= limit // 4
            half.features = raw_features(half.samples.take, half.schedule, width, store, run, by_blocks=by_blocks)
        for k, share in enumerate(budget.layers[:n_open]):
            plan, (train, test) = plans[k], halves
            on_node = on_layer(k, plan.fields.n_nodes * len(train.schedule.tiles))
            stores = [
                make_store(share.place, plan.fields.n_nodes, plan.n_components, half.schedule.samples, dtype, folder)
                for half in halves
            ]
            train.features.fill()
            test.features.fill()
            judge = _Judge(plan, halves, dtype, run, max(1, limit // (8 * share.sum_bytes)))
            gathering = ThreadGathering(plan, train.features, train.schedule, dtype, run, share.nodes_at_once, on_node)
            layer, train.features = train_layer(gathering, means, stores[0], judge if plan.options.is_open else None)
            test.features = computed_features(layer, test.features, stores[1], dtype, run)
            chosen[k], found[k], means = layer.plan, judge.found, layer.output_means
            del gathering
    return chosen, found


@dataclass(eq=False)
class _Judge:
    """Chooses the options of a layer by some of its nodes, `most` at most."""

    plan: LayerPlan
    halves: Sequence[Half]
    dtype: np.dtype[Any]
    run: Runner
    most: int
    found: Any = None

    def __call__(self, frontends: tuple[Frontend, ...]) -> LayerPlan:
        plan = self.plan
        nodes = evenly_spread(plan.fields.n_nodes, min(MAX_NODES, self.most))
        train, test = (self._covariances(half, nodes, frontends) for half in self.halves)
        results: list[Any] = [None] * len(train)

        def judge(i: int) -> None:
            n_expanded = frontends[0].n_expanded
            results[i] = held_out([(train[i], test[i])], n_expanded, n_judged(n_expanded, plan.options), plan.options)

        self.run(judge, len(train))
        self.found = joined(results)
        return replace(plan, options=self.found.chosen(plan.options))

    def _covariances(self, half: Half, nodes: Any, frontends: tuple[Frontend, ...]) -> list[Covariances]:
        """Covariances of some nodes on the samples of a half; of all fields together if weights are shared."""
        index, features = self.plan.fields.index[nodes], half.features
        first = features.tile(0)
        own = [frontends[p if len(frontends) > 1 else 0] for p in nodes]
        sums = [
            NodeSums(frontend, half.schedule.plan, self.dtype, first=field_of(first, field).columns(0, PILOT))
            for frontend, field in zip(own, index, strict=True)
        ]

        def fields(t: int) -> Callable[[int], Any]:
            block = features.tile(t)
            return lambda i: field_of(block, index[i])

        gather(sums, in_blocks(half.schedule.blocks, fields), self.run)
        found = [statistics_of(one, self.plan.precision(self.dtype)) for one in sums]
        if self.plan.shared:
            found = [add_fields([one.without_groups() for one in found])]
        return [one.covariances() for one in found]
