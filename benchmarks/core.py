"""How fast and how frugal a fit of a single node is.

    python benchmarks/core.py            all tables, some minutes
    python benchmarks/core.py --quick    smaller data, fewer rounds
    python benchmarks/core.py --profile  where the time goes, by function

The yardstick is the bare product ``Z.T @ Z`` of the same data in the same precision: no training from second moments
can cost less. SFA needs two such products, one of the data and one of their differences in time.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from _timing import NOISY, Task, environment, peak_memory, print_table, take_turns, write_json
from threadpoolctl import threadpool_limits

from higsfa import GSFA, IGSFA, SFA
from higsfa.core.expansions import parse_expansion
from higsfa.graphs import ClusteredGraph, SerialGraph

THREADS = 1
BARE = "bare product"
MIB = 2**20
RESULTS = Path(__file__).parent / "results" / "core.json"
QUADRATIC = "identity | quadratic"
EXPANDED = "GSFA, serial, quadratic"
THREE_LABELS = SerialGraph("age") + ClusteredGraph("gender") + ClusteredGraph("race")
PACKAGES = ("higsfa", "numpy", "scipy", "scikit-learn", "deeptime", "sklearn-sfa")

FIT_TARGET = 1.6
SINGLE_TARGET = 1.6
DELTA_TARGET = 1e-4
MEMORY_TARGET = 64.0


def make_data(n: int, n_features: int, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Samples that carry a number, two classes, five classes and ten classes, mixed with noise; and these labels."""
    rng = np.random.default_rng(seed)
    labels = {
        "age": rng.uniform(16, 77, n),
        "gender": rng.integers(0, 2, n),
        "race": rng.integers(0, 5, n),
        "digit": rng.integers(0, 10, n),
    }
    sources = rng.standard_normal((n, n_features))
    position = (labels["age"] - 16) / 61
    signals = [np.cos(np.pi * k * position) for k in range(1, 5)]
    signals += [rng.standard_normal(int(labels[name].max()) + 1)[labels[name]] for name in ("gender", "race", "digit")]
    sources[:, : len(signals)] = 1.5 * np.column_stack(signals) + 0.5 * sources[:, : len(signals)]
    mixing = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0] * np.geomspace(3, 0.1, n_features)
    return sources @ mixing + rng.uniform(-1, 1, n_features), labels


def make_series(n: int, n_features: int, seed: int = 0) -> np.ndarray:
    """Signals from slow to fast, mixed."""
    from scipy.signal import lfilter

    rng = np.random.default_rng(seed)
    keep = np.linspace(0.999, 0.0, n_features)
    signals = [lfilter([np.sqrt(1 - a * a)], [1, -a], rng.standard_normal(n)) for a in keep]
    mixing = np.linalg.qr(rng.standard_normal((n_features, n_features)))[0] * np.geomspace(3, 0.1, n_features)
    return np.column_stack(signals) @ mixing


def graph_tasks(X: np.ndarray, labels: dict[str, np.ndarray]) -> dict[str, Task]:
    """Fits of GSFA with the three graphs."""
    return {
        "clustered, 10 classes": lambda: GSFA(graph="clustered").fit(X, labels["digit"]),
        "serial, 32 groups": lambda: GSFA(graph="serial").fit(X, labels["age"]),
        "three labels": lambda: GSFA(graph=THREE_LABELS).fit(X, labels),
    }


def bench_graphs(n: int, rounds: int) -> list[dict[str, Any]]:
    """GSFA, IGSFA and partial_fit against the bare product."""
    X64, labels = make_data(n, 120)

    def tasks(X: np.ndarray) -> dict[str, Task]:
        return {
            BARE: lambda: X.T @ X,
            **{f"GSFA, {name}": task for name, task in graph_tasks(X, labels).items()},
            "IGSFA, three labels": lambda: IGSFA(20, graph=THREE_LABELS).fit(X, labels),
            "GSFA.partial_fit, 10 classes, 20 batches": lambda: in_batches(X, labels["digit"], 20),
        }

    return in_both_precisions(X64, tasks, rounds)


def bench_expansion(n: int, rounds: int) -> list[dict[str, Any]]:
    """A quadratic expansion against the bare product of data that have been expanded before."""
    x64, labels = make_data(n, 14)
    expansion = parse_expansion(QUADRATIC)

    def tasks(x: np.ndarray) -> dict[str, Task]:
        Z = np.ascontiguousarray(expansion(np.ascontiguousarray((x - x.mean(axis=0)).T)).T)
        return {
            BARE: lambda: Z.T @ Z,
            EXPANDED: lambda: GSFA(graph="serial", expansion=QUADRATIC).fit(x, labels["age"]),
        }

    return in_both_precisions(x64, tasks, rounds)


def in_both_precisions(
    X: np.ndarray, tasks_for: Callable[[np.ndarray], dict[str, Task]], rounds: int
) -> list[dict[str, Any]]:
    """Time tasks in float64 and float32, all in the same rounds; each in units of its own bare product."""
    tasks = {
        (name, dtype): task for dtype in ("float64", "float32") for name, task in tasks_for(X.astype(dtype)).items()
    }
    timings = take_turns(tasks, rounds, THREADS)
    return [
        {
            "name": name,
            "dtype": dtype,
            "best_ms": round(1e3 * timing.best, 2),
            "ratio": round(timing.over(timings[BARE, dtype]), 3),
            "cpu_ratio": round(timing.cpu_over(timings[BARE, dtype]), 3),
            "spread": round(timing.spread, 3),
        }
        for (name, dtype), timing in timings.items()
    ]


def in_batches(X: np.ndarray, y: np.ndarray, n_batches: int) -> GSFA:
    model = GSFA(graph="clustered")
    for rows in np.array_split(np.arange(len(X)), n_batches):
        model.partial_fit(X[rows[0] : rows[-1] + 1], y[rows])
    return model


def bench_sfa(n: int, rounds: int) -> list[dict[str, Any]]:
    """Linear SFA against the bare product, deeptime and sklearn-sfa."""
    X64 = make_series(n, 100)

    def tasks(X: np.ndarray) -> dict[str, Task]:
        return {BARE: lambda: X.T @ X, "higsfa SFA": lambda: SFA().fit(X), **competitors(X)}

    return in_both_precisions(X64, tasks, rounds)


def competitors(X: np.ndarray) -> dict[str, Task]:
    """Fits by other libraries, as far as they are installed."""
    tasks: dict[str, Task] = {}
    tica, other = other_libraries()
    if tica is not None:
        tasks["deeptime TICA"] = lambda: tica(lagtime=1).fit(X)
    if other is not None:
        tasks["sklearn-sfa SFA"] = lambda: other().fit(X)
        tasks["sklearn-sfa SFA, svd_solver='covariance_eigh'"] = lambda: other(svd_solver="covariance_eigh").fit(X)
    return tasks


@cache
def other_libraries() -> tuple[Any, Any]:
    """deeptime's TICA and sklearn-sfa's SFA; None for what is missing."""
    found = []
    for package, module, name in (("deeptime", "deeptime.decomposition", "TICA"), ("sklearn-sfa", "sksfa", "SFA")):
        try:
            found.append(getattr(import_module(module), name))
        except ImportError:
            print(f"\n{package} is not installed (pip install 'higsfa[bench]'): its rows are left out")
            found.append(None)
    return found[0], found[1]


def bench_precision(n: int, timed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """float32 against float64: speed from the rows timed before, and the difference of the Delta values."""
    X, labels = make_data(n, 120)
    series = make_series(n, 100)
    x, _ = make_data(n, 14)
    fits = {
        "GSFA, clustered, 10 classes": lambda t: GSFA(graph="clustered").fit(X.astype(t), labels["digit"]),
        "GSFA, serial, 32 groups": lambda t: GSFA(graph="serial").fit(X.astype(t), labels["age"]),
        "GSFA, three labels": lambda t: GSFA(graph=THREE_LABELS).fit(X.astype(t), labels),
        EXPANDED: lambda t: GSFA(graph="serial", expansion=QUADRATIC).fit(x.astype(t), labels["age"]),
        "higsfa SFA": lambda t: SFA().fit(series.astype(t)),
        BARE: None,
    }
    rows = []
    for name, fit in fits.items():
        double, single = (
            next(r for r in timed if r["name"] == name and r["dtype"] == t) for t in ("float64", "float32")
        )
        row = {"name": name, "speed_up": round(double["best_ms"] / single["best_ms"], 2), "delta_difference": None}
        if fit is not None:
            a, b = fit(np.float64).delta_values_, fit(np.float32).delta_values_
            row["delta_difference"] = float(f"{np.abs(a - b).max():.1e}")
        rows.append(row)
    return rows


def bench_memory(sizes: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
    """Peak memory of a fit whose data lie in a file."""
    rows = []
    for n, n_features in sizes:
        X, labels = make_data(n, n_features)
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / "x.npy", X)
            file_bytes = X.nbytes
            X = np.load(Path(folder) / "x.npy", mmap_mode="r")
            fits = {
                **{f"GSFA, {name}": task for name, task in graph_tasks(X, labels).items()},
                "IGSFA, three labels": lambda X=X, labels=labels: IGSFA(20, graph=THREE_LABELS).fit(X, labels),
                "SFA": lambda X=X: SFA().fit(X),
                "SFA, 'identity | power0.8'": lambda X=X: SFA(expansion="identity | power0.8").fit(X),
            }
            for name, task in fits.items():
                peak, model = peak_memory(task)
                sums = sum(a.nbytes for a in vars(model.statistics_.sums).values() if isinstance(a, np.ndarray))
                rows.append(
                    {
                        "name": name,
                        "samples": n,
                        "variables": n_features,
                        "file_mib": round(file_bytes / MIB, 1),
                        "peak_mib": round(peak / MIB, 1),
                        "sums_mib": round(sums / MIB, 1),
                    }
                )
            del X, fits, task, model
    return rows


def profile(n: int) -> None:
    """Print where the fits spend their time (the thread that reads ahead is not seen by the profiler)."""
    X64, labels = make_data(n, 120)
    narrow, _ = make_data(n, 14)
    series = make_series(n, 100)
    for dtype in (np.float64, np.float32):
        X = X64.astype(dtype)
        tasks = graph_tasks(X, labels)
        S = series.astype(dtype)
        x = narrow.astype(dtype)
        tasks["SFA"] = lambda S=S: SFA().fit(S)
        tasks["serial, quadratic"] = lambda x=x: GSFA(graph="serial", expansion=QUADRATIC).fit(x, labels["age"])
        for name, task in tasks.items():
            with threadpool_limits(THREADS):
                task()
                profiler = cProfile.Profile()
                profiler.runcall(task)
            print(f"\n== {name}, {np.dtype(dtype)}")
            pstats.Stats(profiler).sort_stats("tottime").print_stats(14)


def show(timed: list[dict[str, Any]], title: str) -> None:
    print_table(
        title,
        ["", "dtype", "ms", "x bare product", "x in processor time", "median/best"],
        [
            [
                r["name"],
                r["dtype"],
                f"{r['best_ms']:.1f}",
                f"{r['ratio']:.2f}",
                f"{r['cpu_ratio']:.2f}",
                f"{r['spread']:.2f}",
            ]
            for r in timed
        ],
    )


def verdicts(
    n: int, graphs: list[dict[str, Any]], precision: list[dict[str, Any]], memory: list[dict[str, Any]]
) -> list[dict]:
    """Targets, what was measured, and whether it is reached; for linear fits of the stated size."""
    fits = [r for r in graphs if r["name"].startswith("GSFA, ") and r["name"] != EXPANDED]
    linear = [r for r in precision if r["delta_difference"] is not None and r["name"] != EXPANDED]
    beyond_sums = [r["peak_mib"] - r["sums_mib"] for r in memory if r["samples"] == n]
    found = [
        ("largest fit / bare product, GSFA", max(r["ratio"] for r in fits), "<=", FIT_TARGET),
        ("smallest float64 / float32, fits", min(r["speed_up"] for r in linear), ">=", SINGLE_TARGET),
        ("largest difference of Delta values", max(r["delta_difference"] for r in linear), "<=", DELTA_TARGET),
        ("largest peak minus sums, MiB", max(beyond_sums), "<=", MEMORY_TARGET),
    ]
    return [
        {
            "what": what,
            "measured": value,
            "target": f"{sign} {target:g}",
            "reached": value <= target if sign == "<=" else value >= target,
        }
        for what, value, sign, target in found
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20,000 samples, 3 rounds; nothing is written")
    parser.add_argument("--profile", action="store_true", help="only profile the fits")
    parser.add_argument("--rounds", type=int, help="rounds of timing; 9 by default")
    options = parser.parse_args()
    n = 20_000 if options.quick else 100_000
    rounds = options.rounds or (3 if options.quick else 9)
    warnings.filterwarnings("ignore", category=UserWarning)
    if options.profile:
        profile(n)
        return
    started = time.perf_counter()
    where = environment(PACKAGES, THREADS)
    print(
        f"{where['processor']}, {where['cores']} cores, load {where['load_average_at_start']}; Python {where['python']}"
    )
    print(", ".join(f"{name} {version or '-'}" for name, version in where["versions"].items()))
    print(f"{', '.join(where['blas'])}, {THREADS} thread of BLAS and OpenMP; best of {rounds} interleaved rounds")

    graphs = bench_graphs(n, rounds)
    show(graphs, f"Fits of {n:,} samples x 120 variables")
    expanded = bench_expansion(n, rounds)
    show(expanded, f"The same with 119 variables, the quadratic expansion of 14: '{QUADRATIC}'")
    series = bench_sfa(n, rounds)
    show(series, f"Linear SFA of {n:,} samples x 100 variables")
    precision = bench_precision(n, [*graphs, *expanded, *series])
    print_table(
        "float32 against float64",
        ["", "times faster", "largest difference of Delta"],
        [
            [r["name"], f"{r['speed_up']:.2f}", "" if r["delta_difference"] is None else f"{r['delta_difference']:.1e}"]
            for r in precision
        ],
    )
    memory = bench_memory(((n, 120),) if options.quick else ((n, 120), (10 * n, 30)))
    print_table(
        "Peak memory of a fit from a memory-mapped float64 file, MiB",
        ["", "samples", "file", "peak", "of it sums"],
        [
            [r["name"], f"{r['samples']:,}", f"{r['file_mib']:.0f}", f"{r['peak_mib']:.1f}", f"{r['sums_mib']:.1f}"]
            for r in memory
        ],
    )
    checks = verdicts(n, graphs, precision, memory)
    print_table(
        "Targets",
        ["", "measured", "target", "reached"],
        [[c["what"], f"{c['measured']:.3g}", c["target"], "yes" if c["reached"] else "no"] for c in checks],
    )
    noise = max(r["spread"] for r in graphs + expanded + series if r["name"] == BARE)
    where["load_average_at_end"] = environment((), THREADS)["load_average_at_start"]
    if noise > NOISY:
        print(
            f"\nThe machine was busy (the bare product's median round took {noise:.2f} times its best): measure again."
        )
    print(f"\n{time.perf_counter() - started:.0f} s, load {where['load_average_at_end']}")
    if not options.quick:
        content = {
            "command": "python benchmarks/core.py",
            "environment": where,
            "rounds": rounds,
            "noisy": noise > NOISY,
        }
        content |= {
            "graphs": graphs,
            "expansion": expanded,
            "sfa": series,
            "precision": precision,
            "memory": memory,
            "targets": checks,
        }
        write_json(RESULTS, content)


if __name__ == "__main__":
    main()
