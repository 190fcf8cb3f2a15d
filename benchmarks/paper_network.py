"""The paper's network: what one more image costs, and how fast images go through it and back.

Marginal cost is the time to fit twice as many images minus the time to fit the others, without the time to solve nodes,
which does not depend on the number of images. It is given in milliseconds of one core: processor time of all threads.
How much faster several threads are than one is measured by whole fits, solving included, and by the bare products: the
machine may not have more to give.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from _data import THREE_LABELS, pictures
from _timing import take_turns

import higsfa.training.statistics as training
from higsfa import HiGSFA, presets
from higsfa.training.layer import LayerPlan, TrainedLayer
from higsfa.training.runner import threads

AUTHORS_MS = 26.0
"""Quoted, not rerun: milliseconds of one core per image of the authors' own code, in float64."""
TILE = 2048


def paper_network(n_jobs: int) -> HiGSFA:
    return presets.higsfa_g3(n_jobs=n_jobs)


def small_network(n_jobs: int) -> HiGSFA:
    """A pyramid for 24 x 24 pixels, to try things out."""
    return presets.pyramid((24, 24), 10, front=None, layer_params={"shrinkage": 0.0}, graph=THREE_LABELS, n_jobs=n_jobs)


def measure(n: int, rounds: int, size: int, make: Callable[[int], HiGSFA], n_jobs: int = 2) -> dict[str, Any]:
    """Fits of n and 2 n images and bare products in turn, on several threads and on one; then there and back."""
    images, labels = pictures(2 * n, size)
    half = {name: values[:n] for name, values in labels.items()}
    net = make(n_jobs)
    plans = net._planned((size, size))
    before = _peak_kib()
    one = make(1)
    fits: list[dict[str, _Fit]] = []
    for _ in range(rounds):
        fits.append(
            {
                "few": _fit(net, images[:n], half),
                "many": _fit(net, images, labels),
                "one thread": _fit(one, images[:n], half),
                "bare": _bare_products(plans, n, n_jobs),
                "bare, one thread": _bare_products(plans, n, 1),
            }
        )

    def best(name: str, what: str = "seconds") -> float:
        return min(float(getattr(fit[name], what)) for fit in fits)

    bare = best("bare, one thread", "adding") / n
    marginal = (best("many", "adding") - best("few", "adding")) / n
    return {
        "images": [n, 2 * n],
        "threads": n_jobs,
        "nodes": sum(plan.fields.n_nodes for plan in plans),
        "fit_seconds": [best("few"), best("many")],
        "one_thread_seconds": best("one thread"),
        "speedup": best("one thread") / best("few"),
        "bare_speedup": best("bare, one thread") / best("bare"),
        "solving_core_seconds": best("many", "solving"),
        "marginal_core_ms": 1e3 * marginal,
        "bare_core_ms": 1e3 * bare,
        "ratio": marginal / bare,
        "authors_core_ms": AUTHORS_MS,
        "peak_mib": (_peak_kib() - before) / 1024,
        "image_mib": images.nbytes / 2**20,
        "there_and_back": _there_and_back(one, images[:TILE]),
        "one_image": _one_image(one, images[:1]),
    }


class _Fit:
    """Seconds on the clock, and of all cores: in the solvers, and elsewhere."""

    def __init__(self, seconds: float, cpu: float, solving: float) -> None:
        self.seconds, self.adding, self.solving = seconds, cpu - solving, solving


def _fit(net: HiGSFA, images: np.ndarray, labels: dict[str, np.ndarray]) -> _Fit:
    solving: list[float] = []
    solve = training.solve_node

    def timed(*given: Any) -> Any:
        start = time.thread_time()
        node = solve(*given)
        solving.append(time.thread_time() - start)
        return node

    with mock.patch.object(training, "solve_node", timed):
        start, cpu = time.perf_counter(), time.process_time()
        net.fit(images, labels)
        return _Fit(time.perf_counter() - start, time.process_time() - cpu, sum(solving))


def _bare_products(plans: list[LayerPlan], n: int, n_jobs: int) -> _Fit:
    """The float32 products of all nodes and n samples."""
    rng = np.random.default_rng(0)
    start, cpu = time.perf_counter(), time.process_time()
    with threads(n_jobs) as run:
        for plan in plans:
            Z = rng.standard_normal((TILE, plan.frontend_size), np.float32)

            def work(_: int, Z: np.ndarray = Z) -> None:
                for lo in range(0, n, TILE):
                    part = Z[: min(TILE, n - lo)]
                    part.T @ part

            run(work, plan.fields.n_nodes)
    return _Fit(time.perf_counter() - start, time.process_time() - cpu, 0.0)


def _there_and_back(net: HiGSFA, images: np.ndarray, rounds: int = 3) -> list[dict[str, Any]]:
    """Images per second on one core, against the bare products with the nodes' own matrices."""
    features = net.transform(images)
    trained: list[TrainedLayer] = net._trained
    nodes = [layer.node(p) for layer in trained for p in range(layer.plan.fields.n_nodes)]
    encoders = [matrix.astype(np.float32) for node in nodes for matrix in (node.slow, node.rest_inputs)]
    decoders = [node.decoder.astype(np.float32) for node in nodes]
    widest = max(matrix.shape[1] for matrix in encoders + decoders)
    block = np.random.default_rng(0).standard_normal((widest, len(images)), np.float32)

    def products(matrices: list[np.ndarray]) -> None:
        for matrix in matrices:
            matrix @ block[: matrix.shape[1]]

    timings = take_turns(
        {
            "transform": lambda: net.transform(images),
            "bare transform": lambda: products(encoders),
            "inverse_transform": lambda: net.inverse_transform(features),
            "bare inverse_transform": lambda: products(decoders),
        },
        rounds,
    )
    return [
        {
            "name": name,
            "images_per_second": len(images) / timings[name].best,
            "ratio": timings[name].over(timings[f"bare {name}"]),
        }
        for name in ("transform", "inverse_transform")
    ]


def _one_image(net: HiGSFA, image: np.ndarray, rounds: int = 30) -> dict[str, float]:
    """Features of a single image, against the time that it takes to read the weights of all nodes from memory."""
    nodes = [layer.node(p) for layer in net._trained for p in range(layer.plan.fields.n_nodes)]
    matrices = [matrix for node in nodes for matrix in (node.slow, node.rest_inputs, node.rest_slow)]
    weights = np.concatenate([matrix.astype(np.float32).ravel() for matrix in matrices])
    timings = take_turns({"image": lambda: net.transform(image), "reading": lambda: weights @ weights}, rounds)
    return {
        "ms": 1e3 * timings["image"].best,
        "reading_ms": 1e3 * timings["reading"].best,
        "ratio": timings["image"].over(timings["reading"]),
    }


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
