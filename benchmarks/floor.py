"""Single nodes against the bare matrix product.

The floor is numpy's ``Z.T @ Z`` of the expanded data in the same precision: no training from second moments can cost
less. SFA needs two such products, one of the data and one of their differences in time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _data import THREE_LABELS, Labels, labelled
from _timing import Task, compare, peak_memory

from higsfa import GSFA, IGSFA, ISFA, SFA
from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.native.tile import as_raw
from higsfa.core.node.frontend import Frontend
from higsfa.core.sums.plan import make_plan
from higsfa.graphs import ClusteredGraph, MixedGraph, SequenceGraph, SerialGraph, WindowGraph
from higsfa.training.gather import ArrayReader, NodeData

BARE = "bare product"
EXPANSIONS = {
    "identity": 120,
    "identity | power0.8": 60,
    "identity | quadratic[:14]": 15,
    "identity | normalized_quadratic[:14]": 15,
    "identity | max2": 60,
}
"""Expansions, each with a number of inputs that makes about 120 variables."""


def estimators(n: int, rounds: int) -> list[dict[str, Any]]:
    """The four single-node estimators on the same samples: over time, or with a serial graph."""
    X, labels = labelled(n, 120)

    def tasks(X: np.ndarray) -> dict[str, Task]:
        return {
            "SFA": lambda: SFA().fit(X),
            "GSFA": lambda: GSFA(graph="serial").fit(X, labels["age"]),
            "ISFA": lambda: ISFA(20).fit(X),
            "IGSFA": lambda: IGSFA(20, graph="serial").fit(X, labels["age"]),
        }

    return _in_both_precisions(X, tasks, rounds)


def graphs(n: int, rounds: int) -> list[dict[str, Any]]:
    """GSFA with each kind of graph."""
    X, labels = labelled(n, 120)

    def tasks(X: np.ndarray) -> dict[str, Task]:
        return {
            "clustered, 10 classes": lambda: GSFA(graph="clustered").fit(X, labels["digit"]),
            "serial, 32 groups": lambda: GSFA(graph=SerialGraph(n_groups=32)).fit(X, labels["age"]),
            "mixed, 32 groups": lambda: GSFA(graph=MixedGraph(n_groups=32)).fit(X, labels["age"]),
            "window in label order, 5 to each side": lambda: GSFA(graph=WindowGraph()).fit(X, labels["age"]),
            "sequence": lambda: GSFA(graph=SequenceGraph()).fit(X),
            "three labels": lambda: GSFA(graph=THREE_LABELS).fit(X, labels),
            "clustered, partial_fit of 20 batches": lambda: _in_batches(X, labels),
        }

    return _in_both_precisions(X, tasks, rounds)


def _in_batches(X: np.ndarray, labels: Labels, n_batches: int = 20) -> GSFA:
    model = GSFA(graph="clustered")
    for rows in np.array_split(np.arange(len(X)), n_batches):
        model.partial_fit(X[rows[0] : rows[-1] + 1], labels["digit"][rows])
    return model


def expansions(n: int, rounds: int) -> list[dict[str, Any]]:
    """Expanding and adding up, for a clustered graph of ten classes; each against the product of what it makes."""
    rows = []
    for text, n_inputs in EXPANSIONS.items():
        X, labels = labelled(n, n_inputs)
        plan = make_plan(ClusteredGraph().build(labels["digit"]))
        expansion = parse_expansion(text)
        frontend = Frontend(expansion, 1, n_inputs, X.mean(axis=0))
        for dtype in ("float64", "float32"):
            data = X.astype(dtype)
            Z = np.ascontiguousarray(frontend.variables(frontend.inputs(as_raw(data.T), data.dtype, clip=False)).T)
            read = ArrayReader(data, data.dtype)
            tasks: dict[str, Task] = {
                BARE: lambda Z=Z: Z.T @ Z,
                text: partial(NodeData(read, frontend, data.dtype, 0.0).gather, plan),
            }
            for row in compare(tasks, BARE, rounds, dtype=dtype)[1:]:
                rows.append({**row, "inputs": n_inputs, "expanded": frontend.n_variables})
    return rows


def from_file(sizes: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
    """Peak memory of fits whose float64 data lie in a file."""
    rows = []
    for n, n_features in sizes:
        X, labels = labelled(n, n_features)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.npy"
            np.save(path, X)
            X = np.load(path, mmap_mode="r")
            fits: dict[str, Task] = {
                "SFA": lambda X=X: SFA().fit(X),
                "GSFA, clustered": lambda X=X, y=labels["digit"]: GSFA(graph="clustered").fit(X, y),
                "GSFA, serial": lambda X=X, y=labels["age"]: GSFA(graph="serial").fit(X, y),
                "GSFA, three labels": lambda X=X, y=labels: GSFA(graph=THREE_LABELS).fit(X, y),
                "IGSFA, three labels": lambda X=X, y=labels: IGSFA(20, graph=THREE_LABELS).fit(X, y),
            }
            for name, task in fits.items():
                peak = peak_memory(task)[0] / 2**20
                file = 8 * n * n_features / 2**20
                rows.append({"name": name, "samples": n, "variables": n_features, "file_mib": file, "peak_mib": peak})
    return rows


def _in_both_precisions(
    X: np.ndarray, tasks_for: Callable[[np.ndarray], dict[str, Task]], rounds: int
) -> list[dict[str, Any]]:
    rows = []
    for dtype in ("float64", "float32"):
        data = X.astype(dtype)
        rows += compare({BARE: lambda data=data: data.T @ data, **tasks_for(data)}, BARE, rounds, dtype=dtype)
    return rows
