"""What a network leaves open, chosen layer by layer on samples that it has not seen.

A network is trained on half of the samples, and each of its layers is judged on the other half: no layer has seen it,
so what the layers below overfitted does not pass for a slow feature. The whole network is trained on all samples then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.held_out import HeldOut, held_out, joined, n_judged
from higsfa.core.sums.accumulate import PILOT, NodeSums
from higsfa.core.sums.plan import make_plan
from higsfa.core.sums.sums import Covariances
from higsfa.training.gather import gather, in_blocks
from higsfa.training.layer import LayerPlan, computed_features, statistics_of, train_layer
from higsfa.training.network import NETWORK_BLOCK, Setup, make_schedule, set_up
from higsfa.training.sources import Source
from higsfa.training.sources.base import evenly_spread
from higsfa.training.statistics import add_fields
from higsfa.training.stores import Features, field_of

MAX_SAMPLES = 20_000
"""Most samples of each half."""
MAX_NODES = 16
"""Nodes of a layer that are judged."""


@dataclass(frozen=True, eq=False)
class Half:
    """Half of the samples, and their graph."""

    samples: Source
    graph: TrainingGraph


def choose_options(
    plans: list[LayerPlan],
    halves: tuple[Half, Half],
    dtype: np.dtype[Any],
    *,
    n_jobs: int,
    limit: int,
    spill: Any,
    on_layer: Callable[[int, int], Callable[[int], None]],
) -> tuple[list[LayerPlan], list[HeldOut | None]]:
    """Plans with all options filled in, and how each layer did on unseen samples (None where nothing was open).

    Parameters
    ----------
    halves : one to train on, one to judge by.
    dtype, n_jobs, limit, spill, on_layer : as in :func:`higsfa.training.network.train_network`.
    """
    chosen, means = list(plans), None
    found: list[HeldOut | None] = [None] * len(plans)
    schedules = [make_schedule(plans, make_plan(half.graph, NETWORK_BLOCK), dtype) for half in halves]
    with ExitStack() as stack:
        train, test = setups = [
            _enter(stack, plans, schedule, half.samples.dtype, dtype, limit=limit, n_jobs=n_jobs, spill=spill)
            for half, schedule in zip(halves, schedules, strict=True)
        ]
        features, unseen = (setup.inputs(half.samples.take) for setup, half in zip(setups, halves, strict=True))
        for k in range(max(k for k, plan in enumerate(plans, 1) if plan.options.is_open)):
            on_node = on_layer(k, plans[k].fields.n_nodes * len(train.schedule.tiles))
            features.fill()
            unseen.fill()
            most = max(1, limit // (8 * train.budget.layers[k].sum_bytes))
            judge = _Judge(plans[k], ((train, features), (test, unseen)), min(MAX_NODES, most))
            choose = judge if plans[k].options.is_open else None
            layer, features = train_layer(train.gathering(k, features, on_node), means, train.store(k), choose)
            unseen = computed_features(layer, unseen, test.store(k), dtype, test.run)
            chosen[k], found[k], means = layer.plan, judge.found, layer.output_means
    return chosen, found


def _enter(stack: ExitStack, *sizes: Any, limit: int, **options: Any) -> Setup:
    """A setup with half of the memory, or with all of it where half is not enough for a single node."""
    try:
        return stack.enter_context(set_up(*sizes, limit=limit // 2, **options))
    except ValueError:
        return stack.enter_context(set_up(*sizes, limit=limit, **options))


@dataclass(eq=False)
class _Judge:
    """Chooses the options of a layer by some of its nodes, on the features below it in both halves."""

    plan: LayerPlan
    halves: tuple[tuple[Setup, Features], ...]
    n_nodes: int
    found: Any = None

    def __call__(self, frontends: tuple[Frontend, ...]) -> LayerPlan:
        plan, n_expanded = self.plan, frontends[0].n_expanded
        train, test = (self._covariances(*half, frontends) for half in self.halves)
        results: list[Any] = [None] * len(train)

        def judge(i: int) -> None:
            results[i] = held_out([(train[i], test[i])], n_expanded, n_judged(n_expanded, plan.options), plan.options)

        self.halves[0][0].run(judge, len(train))
        self.found = joined(results)
        return replace(plan, options=self.found.chosen(plan.options))

    def _covariances(self, setup: Setup, features: Features, frontends: tuple[Frontend, ...]) -> list[Covariances]:
        """Covariances of some nodes on the samples of a half; of all their fields together if weights are shared."""
        nodes, first = evenly_spread(self.plan.fields.n_nodes, self.n_nodes), features.tile(0)
        index = self.plan.fields.index[nodes]
        sums = [
            NodeSums(
                frontends[p if len(frontends) > 1 else 0],
                setup.schedule.plan,
                setup.dtype,
                first=field_of(first, field).columns(0, PILOT),
            )
            for p, field in zip(nodes, index, strict=True)
        ]

        def fields(t: int) -> Callable[[int], Any]:
            block = features.tile(t)
            return lambda i: field_of(block, index[i])

        gather(sums, in_blocks(setup.schedule.blocks, fields), setup.run)
        found = [statistics_of(one, self.plan.precision(setup.dtype)) for one in sums]
        if self.plan.shared:
            found = [add_fields([one.without_groups() for one in found])]
        return [one.covariances() for one in found]
