"""What a user would take instead, on the same work: deeptime, sklearn-sfa, scikit-learn, and MDP 3.6.

Beside each time stands how well the features agree: the smallest canonical correlation between the leading features
of both, on some thousand samples. 1 means that both span the same space.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from _data import THREE_LABELS, labelled, series
from _mdp import MdpProcess, MdpTask, mdp_python
from _timing import Task, compare
from scipy.linalg import subspace_angles
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from higsfa import GSFA, IGSFA, SFA
from higsfa.graphs import ClusteredGraph, SerialGraph

CHECKED = 4000
OURS = "higsfa "
PCA_ONLY = {"n_components": 20, "graph": "clustered", "delta_threshold": -1.0}
"""Parameters of an IGSFA without slow features: its reconstructive part is a PCA."""


@dataclass
class Contest:
    """One piece of work: the first task is ours; `k` leading features should agree."""

    work: str
    data: np.ndarray
    tasks: dict[str, Task]
    k: int

    def run(self, rounds: int) -> list[dict[str, Any]]:
        """One row a competitor, times in units of ours."""
        ours = next(iter(self.tasks))
        mine = _features(self.tasks[ours], self.data)[:, : self.k]
        rows = compare(self.tasks, ours, rounds, dtype=str(self.data.dtype))
        for row in rows:
            theirs = _features(self.tasks[row["name"]], self.data)[:, : self.k]
            row |= {"work": self.work, "agreement": _agreement(mine, theirs)}
        return rows


def _features(task: Task, data: np.ndarray) -> np.ndarray:
    if isinstance(task, MdpTask):
        return np.array(task.features(CHECKED))
    return np.asarray(task().transform(data[:CHECKED]), dtype=np.float64)


def _agreement(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.cos(subspace_angles(a - a.mean(axis=0), b - b.mean(axis=0))).min())


def libraries(n: int, rounds: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Other libraries for the present Python; and what was left out."""
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    tica = _import("deeptime.decomposition", "TICA", left_out)
    other = _import("sksfa", "SFA", left_out)
    X64, labels = labelled(n, 120)
    S64 = series(n, 100)
    digit = labels["digit"]
    for dtype in (np.float64, np.float32):
        X, S = X64.astype(dtype), S64.astype(dtype)
        slow: dict[str, Task] = {OURS + "SFA": lambda S=S: SFA(10).fit(S)}
        if tica is not None:
            slow["deeptime TICA"] = lambda S=S: tica(lagtime=1, dim=10).fit(S).fetch_model()
        if other is not None:
            slow["sklearn-sfa SFA"] = lambda S=S: other(10).fit(S)
            slow["sklearn-sfa SFA, covariance_eigh"] = lambda S=S: other(10, svd_solver="covariance_eigh").fit(S)
        components: dict[str, Task] = {
            OURS + "IGSFA without slow features": lambda X=X: IGSFA(**PCA_ONLY).fit(X, digit),
            "scikit-learn PCA": lambda X=X: PCA(20).fit(X),
            "scikit-learn IncrementalPCA": lambda X=X: IncrementalPCA(20).fit(X),
        }
        classes: dict[str, Task] = {
            OURS + "GSFA, self_loops": lambda X=X: GSFA(9, graph=ClusteredGraph(self_loops=True)).fit(X, digit),
            "scikit-learn LDA": lambda X=X: LinearDiscriminantAnalysis().fit(X, digit),
            "scikit-learn LDA, eigen": lambda X=X: LinearDiscriminantAnalysis(solver="eigen").fit(X, digit),
        }
        rows += Contest("slow features of a time series", S, slow, 3).run(rounds)
        rows += Contest("principal components", X, components, 20).run(rounds)
        rows += Contest("discriminant analysis, 10 classes", X, classes, 1).run(rounds)
    return rows, left_out


def _import(module: str, name: str, left_out: list[str]) -> Any:
    try:
        return getattr(import_module(module), name)
    except ImportError:
        left_out.append(f"{module.partition('.')[0]} is not installed (pip install 'higsfa[bench]')")
        return None


def mdp(n: int, rounds: int, python: str | None) -> tuple[list[dict[str, Any]], list[str], dict[str, str]]:
    """MDP's nodes against ours, float64, on the same arrays; what was left out; versions."""
    found, trouble = mdp_python(python)
    if found is None:
        return [], [f"MDP: {trouble}"], {}
    X, labels = labelled(n, 120)
    S = series(n, 100)
    serial = SerialGraph(n_groups=32)
    age, digit = labels["age"], labels["digit"]
    with tempfile.TemporaryDirectory() as folder:
        for name, array in {"x": X, "series": S, **labels}.items():
            np.save(Path(folder) / f"{name}.npy", array)
        with MdpProcess(found, Path(folder)) as other:
            pairs: list[tuple[str, np.ndarray, str, Task, int]] = [
                ("SFA", S, "SFANode", lambda: SFA().fit(S), 3),
                ("GSFA, clustered", X, "GSFANode, clustered", lambda: GSFA(graph="clustered").fit(X, digit), 1),
                ("GSFA, serial", X, "GSFANode, serial", lambda: GSFA(graph=serial).fit(X, age), 3),
                ("GSFA, three labels", X, "GSFANode, three labels", lambda: GSFA(graph=THREE_LABELS).fit(X, labels), 3),
                ("IGSFA, serial", X, "iGSFANode, serial", lambda: IGSFA(20, graph=serial).fit(X, age), 20),
            ]
            rows: list[dict[str, Any]] = []
            for work, data, name, task, k in pairs:
                tasks = {OURS + work: task, "MDP " + name: other.task(name)}
                rows += Contest(work, data, tasks, k).run(rounds)
            return rows, [], dict(other.versions)
