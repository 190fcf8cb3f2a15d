"""How the time of a fit grows with samples, inputs, threads and Dask workers.

Samples and inputs: the paper's quadratic one-dimensional network, whose number of nodes is proportional to its inputs.
Threads and workers: a pyramid on small images.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from _data import pictures
from _timing import Task, take_turns
from paper_network import bare_products

from higsfa import presets, sources
from higsfa.graphs import SerialGraph


def by_samples_and_inputs(
    counts: list[int], sizes: list[int], fixed_size: int, fixed_count: int, rounds: int
) -> dict[str, Any]:
    """Seconds of fits on one thread, and the exponents of power laws through them."""
    rng = np.random.default_rng(0)

    def task(count: int, size: int) -> Task:
        X = np.cumsum(rng.standard_normal((count, size), np.float32), axis=0) * np.float32(0.1)
        X += rng.standard_normal((count, size), np.float32)
        return lambda: presets.qhsfa_1d(size, k=8, n_jobs=1).fit(X)

    tasks = {("count", count): task(count, fixed_size) for count in counts}
    tasks |= {("size", size): task(fixed_count, size) for size in sizes}
    timings = take_turns(tasks, rounds)
    by_count = [timings["count", count].best for count in counts]
    by_size = [timings["size", size].best for size in sizes]
    return {
        "samples": {"x": counts, "seconds": by_count, "exponent": _exponent(counts, by_count), "inputs": fixed_size},
        "inputs": {"x": sizes, "seconds": by_size, "exponent": _exponent(sizes, by_size), "samples": fixed_count},
    }


def _exponent(x: list[int], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def by_threads_and_workers(n: int, size: int, rounds: int) -> tuple[dict[str, Any], list[str]]:
    """Seconds of fits with one and two threads or workers, in turn; and what was left out."""
    images, labels = pictures(n, size)
    left_out: list[str] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as clusters:
        path = Path(folder) / "images.npy"
        np.save(path, images)

        def task(**how: Any) -> Task:
            graph = SerialGraph(n_groups=32)
            own = {"graph": graph, "layer_params": {"shrinkage": 0.0}, **how}
            return lambda: presets.pyramid((size, size), 40, front=None, **own).fit(sources.npy(path), labels["age"])

        trained = task(n_jobs=2)()._trained
        tasks = {f"threads {k}": task(n_jobs=k) for k in (1, 2)}
        tasks |= {f"bare products {k}": lambda k=k: bare_products(trained, n, k) for k in (1, 2)}  # type: ignore[misc]
        try:
            tasks |= {f"workers {k}": on_cluster(clusters, k, task(engine="dask")) for k in (1, 2)}
        except ImportError:
            left_out.append("dask and distributed are not installed (pip install 'higsfa[dask]')")
        timings = take_turns(tasks, rounds)
    result: dict[str, Any] = {"samples": n, "shape": [size, size]}
    for kind in ("threads", "workers", "bare products"):
        if f"{kind} 1" in timings:
            x, seconds = [1, 2], [timings[f"{kind} {k}"].best for k in (1, 2)]
            result[kind] = {"x": x, "seconds": seconds, "exponent": _exponent(x, seconds)}
    one, two = result["threads"]["seconds"]
    bare_one, bare_two = result["bare products"]["seconds"]
    result["gained"] = (one / two) / (bare_one / bare_two)
    return result, left_out


def on_cluster(clusters: ExitStack, workers: int, task: Task) -> Task:
    """The task on a cluster of so many worker processes of one thread each."""
    from distributed import Client, LocalCluster

    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    client = Client(clusters.enter_context(LocalCluster(**options)), set_as_default=False)
    clusters.callback(client.close)

    def run() -> None:
        with client.as_current():
            task()

    return run
