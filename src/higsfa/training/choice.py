"""What a network leaves open, chosen layer by layer on samples that it has not seen.

A network is trained on two thirds of the samples, and each of its layers is judged on the others: no layer has seen
them, so what the layers below overfitted does not pass for a slow feature. The whole network is trained on all samples
then.

Where several layers learn from labels, they have one shrinkage in common, the best for all of them together: a layer
alone, of few slow features or nodes, says little. Layers ask for about as much as those below them have, so while they
are judged all have the same, one from the middle of the ladder. There is none where it brings too little.

Where only one layer learns from labels, its inputs know nothing of them. It takes the value whose features say most
about unseen samples, in proportion to 1 / N: as the optimal ridge of a regression, which is noise over signal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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

TRAINED = 2 / 3
"""Share of the samples to train on, if there are no more than that."""
WHILE_JUDGED = 0.1
"""Shrinkage of all layers that leave it open, while they are judged; on the ladder."""
LAST = 4
"""Layers at the top that decide: what nodes far below gain, the top need not."""
LEAST_GAIN = 0.02
"""Part of the information of features by which shrinkage must raise it: else there is none."""
MAX_NODES = 16
"""Nodes of a layer that are judged."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the samples, their graph, and their share of the weight of all samples."""

    samples: Source
    graph: TrainingGraph
    share: float


def choose_options(
    plans: list[LayerPlan],
    parts: tuple[Part, Part],
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
    parts : samples to train on, and samples to judge by.
    dtype, n_jobs, limit, spill, on_layer : as in :func:`higsfa.training.network.train_network`.
    """
    chosen, means = list(plans), None
    found: list[HeldOut | None] = [None] * len(plans)
    rows = tile_size(plans, plans[0].n_below, dtype.itemsize)
    schedules = [Schedule(make_plan(part.graph, NETWORK_BLOCK), rows) for part in parts]
    with ExitStack() as stack:
        train, test = setups = [
            _enter(stack, plans, schedule, part.samples.dtype, dtype, limit=limit, n_jobs=n_jobs, spill=spill)
            for part, schedule in zip(parts, schedules, strict=True)
        ]
        features, unseen = (setup.inputs(part.samples.take) for setup, part in zip(setups, parts, strict=True))
        for k in range(max(k for k, plan in enumerate(plans, 1) if plan.options.is_open)):
            on_node = on_layer(k, plans[k].n_trained * len(train.schedule.tiles))
            features.fill()
            unseen.fill()
            gatherings = train.gathering(k, features), test.gathering(k, unseen)
            judge = _Judge(plans[k], gatherings, noise_level([parts[1].graph]))
            choose = judge if plans[k].options.is_open else None
            layer, features = train_layer(train.gathering(k, features, on_node), means, train.store(k), choose)
            unseen = computed_features(layer, unseen, test.store(k), test)
            chosen[k], found[k], means = layer.plan, judge.found, layer.output_means
    judged = [one for plan, one in zip(plans, found, strict=True) if one and plan.options.shrinkage == AUTO]
    is_single = sum(plan.options.learns for plan in plans) == 1
    best, shrinkage = _best(judged, parts[0].share, is_single) if judged else (0, 0.0)
    for k, (plan, one) in enumerate(zip(plans, found, strict=True)):
        if one is not None and plan.options.shrinkage == AUTO:
            found[k] = one = replace(one, best=best, shrinkage=shrinkage)
            chosen[k] = replace(plan, options=one.chosen(plan.options))
    return chosen, found


def _best(judged: list[HeldOut], share: float, is_single: bool) -> tuple[int, float]:
    """Number of the value that is best for all layers together, and the value for all samples.

    Parameters
    ----------
    share : that of the samples that layers were trained on.
    is_single : whether only one layer learns from labels.
    """
    ladder, judged = judged[0].ladder, judged[-LAST:]
    information = np.sum([one.information.mean(axis=1) for one in judged], axis=0)
    slowness = np.sum([one.slowness.mean(axis=1) for one in judged], axis=0)
    evidence = information if is_single else slowness
    if not is_single and information.max() <= (1.0 + LEAST_GAIN) * information[0]:
        return 0, 0.0
    factor = share if is_single else min(1.0, share / TRAINED)
    return int(np.argmax(evidence)), float(f"{peak(ladder, evidence) * factor:.2g}")


def _enter(stack: ExitStack, *sizes: Any, limit: int, **options: Any) -> Setup:
    """A setup with half of the memory, or with all of it where half is not enough for a single node."""
    try:
        return stack.enter_context(set_up(*sizes, limit=limit // 2, **options))
    except ValueError:
        return stack.enter_context(set_up(*sizes, limit=limit, **options))


@dataclass(eq=False)
class _Judge:
    """Chooses the options of a layer by some of its nodes, on the features below it in both parts of the samples.

    `noise` is the Delta of noise on the part that judges.
    """

    plan: LayerPlan
    parts: tuple[ThreadGathering, ThreadGathering]
    noise: float
    found: Any = None

    def __call__(self, frontends: tuple[Frontend, ...]) -> LayerPlan:
        plan, n_expanded = self.plan, frontends[0].n_expanded
        train, test = (self._covariances(part, frontends) for part in self.parts)
        results: list[Any] = [None] * len(train)

        def judge(i: int) -> None:
            n_features = n_judged(n_expanded, plan.options)
            results[i] = held_out([(train[i], test[i])], n_expanded, n_features, plan.options, self.noise)

        self.parts[0].run(judge, len(train))
        self.found = joined(results)
        if plan.options.shrinkage == AUTO:
            self.found = replace(self.found, best=LADDER.index(WHILE_JUDGED), shrinkage=WHILE_JUDGED)
        return replace(plan, options=self.found.chosen(plan.options))

    def _covariances(self, part: ThreadGathering, frontends: tuple[Frontend, ...]) -> list[Covariances]:
        """Covariances of some nodes on the samples of a part; of all their fields together if weights are shared."""
        nodes = evenly_spread(self.plan.fields.n_nodes, MAX_NODES)
        some = replace(self.plan, fields=self.plan.fields.some(nodes))
        own = tuple(frontends[p] for p in nodes) if len(frontends) > 1 else frontends
        if self.plan.shared:
            return [add_fields(part(some, own, GraphStatistics.without_groups)).covariances()]
        return part(some, own, GraphStatistics.covariances)
