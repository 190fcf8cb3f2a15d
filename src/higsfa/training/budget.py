"""What a fit takes, and what is kept where: in memory, on disk, or computed again."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, log2
from numbers import Integral
from typing import Any

from higsfa.core.expansion.kernel import n_points
from higsfa.training.layer import LayerPlan

NETWORK_TILE = 2048
"""Most samples in a tile of a network."""
SHORT_FROM = 2**31
"""Bytes of the features of a layer, in single precision, from which on they wait in 16 bits."""
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


def tile_size(plans: Sequence[LayerPlan], n_pixels: int, itemsize: int) -> int:
    """Samples in a tile: 2,048, or fewer where the widest layer would take too much memory."""
    widest = max([n_pixels] + [plan.fields.n_nodes * plan.n_components for plan in plans])
    fitting = max(1, TILE_MEMORY // (widest * itemsize))
    return min(NETWORK_TILE, max(64, 1 << (fitting.bit_length() - 1)))


def are_short(plans: Sequence[LayerPlan], n_samples: int, itemsize: int) -> bool:
    """Whether features wait in 16 bits: where those of a layer would take more than 2 GiB in single precision.

    It changes the last digits of the features that nodes learn from, so it must not depend on the memory at hand.
    """
    widest = max(plan.fields.n_nodes * plan.n_components for plan in plans[:-1]) if len(plans) > 1 else 0
    return itemsize == 4 and n_samples * widest * itemsize > SHORT_FROM


@dataclass(frozen=True)
class Workload:
    """What a fit is of.

    Attributes
    ----------
    plans : the layers.
    n_samples, n_pixels, input_itemsize : size of the data.
    itemsize : of the products.
    n_channels, n_atoms, n_blocks : of the plan of the graph.
    n_jobs : threads.
    short : whether features wait in 16 bits.
    """

    plans: tuple[LayerPlan, ...]
    n_samples: int
    n_pixels: int
    input_itemsize: int
    itemsize: int
    n_channels: int
    n_atoms: int
    n_blocks: int
    n_jobs: int
    short: bool = False

    @property
    def input_bytes(self) -> int:
        return self.n_samples * self.n_pixels * self.input_itemsize

    @property
    def working_bytes(self) -> int:
        """Memory of tiles and threads, in addition to what is kept."""
        rows = min(self.n_samples, tile_size(self.plans, self.n_pixels, self.itemsize))
        widest = max([self.n_pixels] + [plan.fields.n_nodes * plan.n_components for plan in self.plans])
        expanded = max(plan.frontend_size for plan in self.plans)
        return rows * self.itemsize * (3 * widest + 4 * self.n_jobs * expanded)


def make_budget(work: Workload, limit: int, disk: int = 0) -> Budget:
    """Decide what to keep where, so that `limit` bytes of memory and `disk` bytes of disk are not exceeded.

    A ValueError if that cannot be done.
    """
    plans, n_samples, n_jobs = work.plans, work.n_samples, work.n_jobs
    levels = 1 + ceil(log2(max(1, work.n_blocks)))
    input_bytes, working = work.input_bytes, work.working_bytes
    place = "memory" if input_bytes + working <= limit // 2 else "disk" if input_bytes <= disk else "nowhere"
    input_place = place
    held = {"memory": 0, "disk": 0, "nowhere": 0}
    held[place] = input_bytes
    lagging = dict.fromkeys(held, 0)  # what features are computed from during the next pass, and not needed after it
    peak, peak_disk, passes = held["memory"] + working, held["disk"], 1
    layers = []
    for k, plan in enumerate(plans):
        nodes = plan.n_trained
        features = n_samples * plan.fields.n_nodes * plan.n_components * (2 if work.short else work.itemsize)
        unknown = k == 0 or plans[k - 1].shared  # means of the inputs are not known beforehand
        first_pass = plan.pca is not None or (unknown and not plan.expansion.is_linear)
        # The pass for means and principal components sums products of raw inputs, and keeps a covariance of each node.
        T = max(plan.frontend_size, plan.n_raw if first_pass else 0)
        sums = 8 * ((work.n_channels + 3) * T * T + (work.n_channels + work.n_atoms) * T)
        kept = 8 * nodes * plan.n_raw**2 if first_pass else 0
        kept += 32 * n_points(plan.expansion.terms) ** 2  # a kernel of points, its axes, and its root in two precisions
        # Sums of fields that share weights wait on the levels of a tree, and in each thread for their turn.
        if plan.shared and nodes > 1:
            folded = 8 * (work.n_channels + 1) * (T * T + T)
            kept += folded * min(nodes, ceil(log2(nodes)) + 1 + n_jobs)
        free = limit - held["memory"] - working - kept
        below_kept = place != "nowhere"
        if below_kept:
            at_once, copies = min(nodes, n_jobs) if plan.shared else n_jobs, levels + 1
        else:
            at_once, copies = min(nodes, max(free, 0) // (sums * levels)), levels
            passes += (ceil(nodes / max(at_once, 1)) + first_pass) if k or input_place == "nowhere" else 0
        need = at_once * sums * copies + kept
        if at_once < 1 or need - kept > free:
            if disk:  # nodes trained one after the other need less memory if what they read is computed again
                return make_budget(work, limit)
            raise ValueError(
                f"memory_limit: {limit / 2**20:.1f} MiB are not enough to train layer {k + 1} "
                f"({nodes} nodes of {T} variables); "
                f"at least {mib(held['memory'] + working + kept + max(1, at_once) * sums * copies)} are"
            )
        fits = "memory" if held["memory"] + features + working + need <= limit else "disk"
        place = "nowhere" if k + 1 == len(plans) or (fits == "disk" and held["disk"] + features > disk) else fits
        peak = max(peak, held["memory"] + working + need + (features if place == "memory" else 0))
        peak_disk = max(peak_disk, held["disk"] + (features if place == "disk" else 0))
        size = plan.frontend_size
        encoded = plan.fields.n_nodes * plan.n_components * (size + plan.n_inputs)
        operations = float(n_samples) * (nodes * size * size / 2 + encoded)
        layers.append(LayerBudget(features, sums, place, at_once, operations))
        held = {name: held[name] - lagging[name] for name in held}
        lagging = dict.fromkeys(held, 0)
        if place != "nowhere":
            if below_kept and not plan.shared:
                held = dict.fromkeys(held, 0)
            else:
                lagging = held.copy()
            held[place] += features
    total = sum(layer.work for layer in layers)
    return Budget(input_place, tuple(layers), int(peak), int(peak_disk), passes, total)


def mib(n_bytes: int) -> str:
    return f"{ceil(n_bytes / 2**20)} MiB"


def parse_memory(memory: Any) -> int:
    """A budget in bytes from a number, a text such as "2 GiB" or "500MB", or None: half of what is available."""
    if memory is None:
        try:
            available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError, AttributeError):
            available = 4 * 2**30
        return max(2**28, available // 2)
    if isinstance(memory, Integral):
        return int(memory)
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)B?\s*", str(memory))
    if not found:
        raise ValueError(f"memory_limit={memory!r} is not a size: use a number of bytes or a text such as '2 GiB'")
    number, prefix, binary = found.groups()
    base = 1024 if binary else 1000
    return int(float(number) * base ** " KMGT".index(prefix.upper() or " "))


@contextmanager
def memory_explained(budget: Budget, limit: int) -> Iterator[None]:
    """Say of what there is too little if the system does not give the memory that a budget allows."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(
            f"memory_limit: {mib(limit)} were allowed and about {mib(budget.memory)} planned for, but the system does "
            f"not give as much ({str(error) or 'out of memory'}); pass a smaller size, such as "
            f"memory_limit='{mib(limit // 2)}', or fewer n_jobs"
        ) from error
