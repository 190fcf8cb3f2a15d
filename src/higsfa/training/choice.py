"""What a network leaves open, chosen layer by layer on samples that it has not seen.

A network is trained on half of the samples, and each of its layers is judged on the other half: no layer has seen it,
so what the layers below overfitted does not pass for a slow feature. The whole network is trained on all samples then.

Where several layers learn from labels, they have one shrinkage in common, the best for all of them together: a layer
alone, of few slow features or nodes, says little. It is left as it is for all samples: layers above see features that
know the labels of the samples they are trained on, which asks for more shrinkage than unseen samples tell.

Where only one layer learns from labels, its inputs know nothing of them. It takes the value whose features say most
about unseen samples, in proportion to 1 / N: as the optimal ridge of a regression, which is noise over signal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.graph.graph import TrainingGraph
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.held_out import LADDER, HeldOut, held_out, joined, n_judged, noise_level, peak
from higsfa.core.node.solve import AUTO
from higsfa.core.sums.plan import make_plan
from higsfa.core.sums.sums import Covariances
from higsfa.training.budget import tile_size
from higsfa.training.layer import LayerPlan, ThreadGathering, computed_features, train_layer
from higsfa.training.network import NETWORK_BLOCK, Setup, set_up
from higsfa.training.sources import Source
from higsfa.training.sources.base import evenly_spread
from higsfa.training.statistics import GraphStatistics, add_fields
from higsfa.training.stores import Schedule

MAX_NODES = 16
"""Nodes of a layer that are judged."""


@dataclass(frozen=True, eq=False)
class Half:
    """Half of the samples, their graph, and their share of the weight of all samples."""

    samples: Source
    graph: TrainingGraph
    share: float


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
    chosen, means, evidence = list(plans), None, np.zeros(len(LADDER))
    found: list[HeldOut | None] = [None] * len(plans)
    is_single = sum(plan.options.learns for plan in plans) == 1
    rows = tile_size(plans, plans[0].n_below, dtype.itemsize)
    schedules = [Schedule(make_plan(half.graph, NETWORK_BLOCK), rows) for half in halves]
    with ExitStack() as stack:
        train, test = setups = [
            _enter(stack, plans, schedule, half.samples.dtype, dtype, limit=limit, n_jobs=n_jobs, spill=spill)
            for half, schedule in zip(halves, schedules, strict=True)
        ]
        features, unseen = (setup.inputs(half.samples.take) for setup, half in zip(setups, halves, strict=True))
        for k in range(max(k for k, plan in enumerate(plans, 1) if plan.options.is_open)):
            on_node = on_layer(k, plans[k].n_trained * len(train.schedule.tiles))
            features.fill()
            unseen.fill()
            gatherings = train.gathering(k, features), test.gathering(k, unseen)
            judge = _Judge(plans[k], gatherings, evidence, is_single, noise_level([halves[1].graph]))
            choose = judge if plans[k].options.is_open else None
            layer, features = train_layer(train.gathering(k, features, on_node), means, train.store(k), choose)
            unseen = computed_features(layer, unseen, test.store(k), test)
            chosen[k], found[k], means = layer.plan, judge.found, layer.output_means
    shrinkage = peak(np.array(LADDER), evidence)
    if is_single:
        shrinkage = float(f"{shrinkage * halves[0].share:.2g}")
    for k, (plan, one) in enumerate(zip(plans, found, strict=True)):
        if one is not None and plan.options.shrinkage == AUTO:
            found[k] = one = replace(one, best=int(np.argmax(evidence)), shrinkage=shrinkage)
            chosen[k] = replace(plan, options=one.chosen(plan.options))
    return chosen, found


def _enter(stack: ExitStack, *sizes: Any, limit: int, **options: Any) -> Setup:
    """A setup with half of the memory, or with all of it where half is not enough for a single node."""
    try:
        return stack.enter_context(set_up(*sizes, limit=limit // 2, **options))
    except ValueError:
        return stack.enter_context(set_up(*sizes, limit=limit, **options))


@dataclass(eq=False)
class _Judge:
    """Chooses the options of a layer by some of its nodes, on the features below it in both halves.

    `noise` is the Delta of noise on the half that judges.

    `evidence` grows by how slow the features of this layer are with each value of the shrinkage (by how much they say
    if this is the only layer that learns from labels), and the layer takes what is best for it and the layers below.
    """

    plan: LayerPlan
    halves: tuple[ThreadGathering, ThreadGathering]
    evidence: NDArray[np.float64]
    is_single: bool
    noise: float
    found: Any = None

    def __call__(self, frontends: tuple[Frontend, ...]) -> LayerPlan:
        plan, n_expanded = self.plan, frontends[0].n_expanded
        train, test = (self._covariances(half, frontends) for half in self.halves)
        results: list[Any] = [None] * len(train)

        def judge(i: int) -> None:
            n_features = n_judged(n_expanded, plan.options)
            results[i] = held_out([(train[i], test[i])], n_expanded, n_features, plan.options, self.noise)

        self.halves[0].run(judge, len(train))
        self.found = joined(results)
        if plan.options.shrinkage == AUTO:
            self.evidence += (self.found.information if self.is_single else self.found.slowness).mean(axis=1)
            best = int(np.argmax(self.evidence))
            self.found = replace(self.found, best=best, shrinkage=LADDER[best])
        return replace(plan, options=self.found.chosen(plan.options))

    def _covariances(self, half: ThreadGathering, frontends: tuple[Frontend, ...]) -> list[Covariances]:
        """Covariances of some nodes on the samples of a half; of all their fields together if weights are shared."""
        nodes = evenly_spread(self.plan.fields.n_nodes, MAX_NODES)
        some = replace(self.plan, fields=self.plan.fields.some(nodes))
        own = tuple(frontends[p] for p in nodes) if len(frontends) > 1 else frontends
        if self.plan.shared:
            return [add_fields(half(some, own, GraphStatistics.without_groups)).covariances()]
        return half(some, own, GraphStatistics.covariances)
