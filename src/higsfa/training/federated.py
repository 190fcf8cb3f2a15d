"""Training by parties that keep their samples: layer by layer, from the sum of their statistics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.node import Node
from higsfa.core.sums.sums import shifted
from higsfa.training.budget import tile_size
from higsfa.training.layer import (
    LayerPlan,
    TrainedLayer,
    computed_features,
    found_frontends,
    known_frontends,
    raw_inputs,
)
from higsfa.training.network import set_up
from higsfa.training.runner import Runner
from higsfa.training.statistics import GraphStatistics, MomentStatistics, Statistics, Summation, add_fields
from higsfa.training.stores import Schedule

DOUBLE = np.dtype(np.float64)


@dataclass(frozen=True, eq=False, repr=False)
class LayerStatistics:
    """The sums of all nodes of a layer over the samples of a party; those of several parties add.

    Attributes
    ----------
    layer : number of the layer, from 1.
    network : a digest of every layer of the network.
    below : a digest of all sums that the network was trained from so far.
    marks : a number for every round that was solved, the same on all machines up to rounding.
    parts : a digest of the sums of every party.
    nodes : statistics, one a field.
    """

    layer: int
    network: tuple[str, ...]
    below: str
    marks: tuple[float, ...]
    parts: tuple[str, ...]
    nodes: tuple[Statistics, ...]

    @property
    def of_inputs(self) -> bool:
        """Whether they are for means and principal components of the inputs, the first of two rounds."""
        return isinstance(self.nodes[0], MomentStatistics)

    def __add__(self, other: object) -> LayerStatistics:
        if not isinstance(other, LayerStatistics):
            return NotImplemented
        other.check(self.layer, self.of_inputs, self.network, self.below, self.marks)
        if [_sizes(node) for node in self.nodes] != [_sizes(node) for node in other.nodes]:
            raise ValueError(f"{self} and {other} cannot be added: their nodes have different sizes")
        if set(self.parts) & set(other.parts):
            raise ValueError(f"{self} and {other} cannot be added: the sums of a party are in both")
        nodes = tuple(a + b for a, b in zip(self.nodes, other.nodes, strict=True))
        return replace(self, parts=self.parts + other.parts, nodes=nodes)

    def __radd__(self, other: object) -> LayerStatistics:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # as `sum` begins

    def check(
        self, layer: int, of_inputs: bool, network: tuple[str, ...], below: str, marks: tuple[float, ...]
    ) -> None:
        """Raise unless these are sums of this round of this network."""
        if self.network != network:
            pairs = enumerate(zip(self.network, network, strict=False), 1)
            differ = [str(k) for k, (a, b) in pairs if a != b]
            what = f"layer {', '.join(differ)} differs" if differ else "the number of layers differs"
            raise ValueError(f"{self} are of another network: {what}; all parties must give the same parameters")
        if (self.layer, self.of_inputs) != (layer, of_inputs):
            raise ValueError(f"{self} are not those of {_round(layer, of_inputs)}, which is the present round")
        if self.below != below:
            raise ValueError(
                f"{self} were gathered on other layers below: all parties must solve every round from the sums of the "
                "same parties"
            )
        if len(self.marks) != len(marks) or not np.allclose(self.marks, marks, rtol=0, atol=1e-6):
            raise ValueError(
                f"{self} were gathered on layers below that were solved from the same sums, but with another result: "
                "some features are equally slow, and machines choose differently; ask for fewer features"
            )

    def __str__(self) -> str:
        return f"sums of {_round(self.layer, self.of_inputs)}"

    def __repr__(self) -> str:
        n, T = len(self.nodes), len(self.nodes[0].shift)
        graph = "" if self.of_inputs else f" for {self.nodes[0].origin}"
        return f"<{self}{graph}, {n} nodes of {T} variables, parties: {len(self.parts)}>"


def _round(layer: int, of_inputs: bool) -> str:
    return f"the inputs of layer {layer}" if of_inputs else f"layer {layer}"


def _sizes(node: Statistics) -> tuple[Any, ...]:
    """What must agree: the kind, variables, inputs, and the sums of label functions."""
    sums = node.sums
    return type(node), len(node.shift), len(sums.low), len(sums.weights) - sums.n_channels


def placeholder(n_variables: int) -> Frontend:
    """Stands for the frontend of a node: that of the party which solves is taken, equal to rounding."""
    return Frontend(parse_expansion("identity"), 1, n_variables, np.zeros(n_variables))


@dataclass(frozen=True, eq=False)
class Progress:
    """A network of which some layers have been solved.

    Attributes
    ----------
    plans : all layers.
    trained : the layers that have been solved.
    inputs : frontends of the next layer, if a round for its inputs has been solved.
    below : a digest of all sums so far.
    marks : of the rounds so far, see `_mark`.
    """

    plans: tuple[LayerPlan, ...]
    trained: tuple[TrainedLayer, ...] = ()
    inputs: tuple[Frontend, ...] | None = None
    below: str = "nothing"
    marks: tuple[float, ...] = ()

    @property
    def layer(self) -> int:
        """Number of the next layer, from 1."""
        return len(self.trained) + 1

    @cached_property
    def network(self) -> tuple[str, ...]:
        from higsfa.training.checkpoints import describe_layers

        return tuple(_digest(text.encode()) for text in describe_layers(self.plans).values())

    @cached_property
    def frontends(self) -> tuple[Frontend, ...] | None:
        """Of the next layer; None if a round for its inputs comes first."""
        means = self.trained[-1].output_means if self.trained else None
        return self.inputs or known_frontends(self.plans[self.layer - 1], means)

    def gather(
        self,
        summation: Summation,
        read: Callable[[NDArray[np.intp]], NDArray[Any]],
        input_dtype: np.dtype[Any],
        rounding: float,
        **options: Any,
    ) -> LayerStatistics:
        """Sums of the present round over the samples of a party, in double precision; options as of `set_up`."""
        plans = [replace(plan, rounding=rounding) for plan in self.plans[: self.layer]]
        schedule = Schedule(summation.plan, tile_size(plans, plans[0].n_below, DOUBLE.itemsize))
        with set_up(plans, schedule, input_dtype, DOUBLE, **options) as setup:
            features = setup.inputs(read)
            for k, layer in enumerate(self.trained):
                features = computed_features(layer, features, setup.store(k), setup)
            features.fill()
            plan, frontends = plans[-1], self.frontends
            if frontends is None:
                plan = raw_inputs(plan)
                frontends = (plan.frontend(np.zeros(plan.n_inputs)),)
            gathering = setup.gathering(self.layer - 1, features)
            nodes = tuple(gathering(plan, frontends, lambda found: _of_party(found, summation)))
        parts = (_digest(*_arrays(nodes)),)
        return LayerStatistics(self.layer, self.network, self.below, self.marks, parts, nodes)

    def solve(self, sums: LayerStatistics, run: Runner) -> Progress:
        """Take the sums of all parties for those of the present round."""
        sums.check(self.layer, self.frontends is None, self.network, self.below, self.marks)
        plan = self.plans[self.layer - 1]
        below = _digest(self.below.encode(), *(part.encode() for part in sorted(sums.parts)))
        self._check_sizes(sums, plan if self.frontends is not None else raw_inputs(plan))
        if self.frontends is None:
            found = [node.moments() for node in sums.nodes]
            precision = max(node.precision for node in sums.nodes)
            inputs = found_frontends(plan, found, precision, run)
            mark = _mark([front.projection.matrix for front in inputs if front.projection is not None])
            return replace(self, inputs=inputs, below=below, marks=(*self.marks, mark))
        frontends = self.frontends * (len(sums.nodes) if len(self.frontends) == 1 else 1)
        own: list[Statistics] = [
            replace(node, frontend=frontend) for node, frontend in zip(sums.nodes, frontends, strict=True)
        ]
        if plan.shared:
            own = [add_fields([node.as_graph().without_groups() for node in own])]
        nodes: list[Any] = [None] * len(own)

        def work(p: int) -> None:
            nodes[p] = own[p].solve(plan.options, clip_range=plan.clip_range)

        run(work, len(own))
        trained: tuple[Node, ...] = tuple(nodes)
        marks = (*self.marks, _mark([node.decoder for node in trained]))
        return Progress(self.plans, (*self.trained, TrainedLayer(plan, trained)), None, below, marks)

    def _check_sizes(self, sums: LayerStatistics, plan: LayerPlan) -> None:
        expected = (plan.frontend_size, plan.n_inputs)
        if len(sums.nodes) != plan.fields.n_nodes or any(_sizes(node)[1:3] != expected for node in sums.nodes):
            raise ValueError(f"{sums!r}: {plan.fields.n_nodes} nodes of {expected[0]} variables are needed")


def _of_party(found: GraphStatistics, summation: Summation) -> Statistics:
    """Statistics of a node. The shift, which a few samples gave, is replaced by a mean over all of them."""
    sums, K = found.sums, found.sums.n_channels
    mean = np.where(found.shift != 0, sums.first[:K].sum(axis=0) / sums.weights[:K].sum(), 0.0)
    return summation.statistics(
        shifted(sums, -mean), found.shift + mean, placeholder(len(found.shift)), found.precision
    )


def _mark(matrices: Sequence[NDArray[np.float64]]) -> float:
    """A number that changes if features, or principal components, have another sign or are rotated."""
    parts = (np.cos(np.arange(A.size)) @ A.ravel() / max(float(np.linalg.norm(A)), 1e-300) for A in matrices)
    return float(sum(parts)) / max(1, len(matrices))


def _arrays(nodes: Sequence[Statistics]) -> list[bytes]:
    return [np.ascontiguousarray(a).tobytes() for node in nodes for a in (node.sums.weights, node.sums.first)]


def _digest(*parts: bytes) -> str:
    sha = hashlib.sha256()
    for part in parts:
        sha.update(len(part).to_bytes(8, "little") + part)
    return sha.hexdigest()[:16]
