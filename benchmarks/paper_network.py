"""The paper's network: what one more image costs, and how fast images go through it and back.

Marginal cost is the time to fit twice as many images minus the time to fit the others, without the time to solve nodes,
which does not depend on the number of images: processor time of one thread.
Bare products are those of the sums and of the features of all nodes, in tiles of the same size. How much faster several
threads are than one is measured by whole fits, solving included, and by the bare products: the machine may not have
more to give. Solving is compared with LAPACK's drivers on the covariances of some nodes of each layer.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import scipy.linalg
from _data import THREE_LABELS, pictures
from _timing import take_turns

import higsfa.training.statistics as training
from higsfa import HiGSFA, presets
from higsfa.core.node.node import Node
from higsfa.core.node.solve import solve_node
from higsfa.training.layer import TrainedLayer
from higsfa.training.runner import one_blas_thread, threads

AUTHORS_MS = 26.0
"""Quoted, not rerun: milliseconds of one core per image of the authors' own code, in float64."""
TILE = 2048
SOME, MOST = 40, 8
"""Every so many-th node of a layer is solved again, and no more than this."""


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
    cases = _Cases()
    for k in range(rounds):
        fits.append(
            {
                "few": _fit(net, images[:n], half),
                "few, one thread": _fit(one, images[:n], half, None if k else cases),
                "many, one thread": _fit(one, images, labels),
                "bare": bare_products(one._trained, n, n_jobs),
                "bare, one thread": bare_products(one._trained, n, 1),
            }
        )

    def best(name: str, what: str = "seconds") -> float:
        return min(float(getattr(fit[name], what)) for fit in fits)

    bare = best("bare, one thread", "adding") / n
    marginal = (best("many, one thread", "adding") - best("few, one thread", "adding")) / n
    speedup = best("few, one thread") / best("few")
    bare_speedup = best("bare, one thread") / best("bare")
    return {
        "images": [n, 2 * n],
        "threads": n_jobs,
        "nodes": sum(plan.fields.n_nodes for plan in plans),
        "fit_seconds": best("few"),
        "one_thread_seconds": [best("few, one thread"), best("many, one thread")],
        "speedup": speedup,
        "bare_speedup": bare_speedup,
        "gained": speedup / bare_speedup,
        "solving_core_seconds": best("few, one thread", "solving"),
        "marginal_core_ms": 1e3 * marginal,
        "bare_core_ms": 1e3 * bare,
        "ratio": marginal / bare,
        "authors_core_ms": AUTHORS_MS,
        "peak_mib": (_peak_kib() - before) / 1024,
        "image_mib": images.nbytes / 2**20,
        "solving": _solving(cases),
        "there_and_back": _there_and_back(one, images[:TILE]),
        "one_image": _one_image(one, images[:1]),
    }


class _Fit:
    """Seconds on the clock, and of all cores: in the solvers, and elsewhere."""

    def __init__(self, seconds: float, cpu: float, solving: float) -> None:
        self.seconds, self.adding, self.solving = seconds, cpu - solving, solving


class _Cases:
    """What some nodes of each layer were solved from, by their sizes, and how many nodes there are of these."""

    def __init__(self) -> None:
        self.kept: dict[Any, list[Any]] = {}
        self.counts: dict[Any, int] = {}

    def add(self, given: tuple[Any, ...]) -> None:
        key = given[1].n_variables, given[3].n_components
        self.counts[key] = self.counts.get(key, 0) + 1
        if self.counts[key] % SOME == 1 and len(self.kept.setdefault(key, [])) < MOST:
            self.kept[key].append(given)


def _fit(net: HiGSFA, images: np.ndarray, labels: dict[str, np.ndarray], cases: _Cases | None = None) -> _Fit:
    solving: list[float] = []
    solve = training.solve_node

    def timed(*given: Any) -> Any:
        start = time.thread_time()
        node = solve(*given)
        solving.append(time.thread_time() - start)
        if cases is not None:
            cases.add(given)
        return node

    with mock.patch.object(training, "solve_node", timed):
        start, cpu = time.perf_counter(), time.process_time()
        net.fit(images, labels)
        return _Fit(time.perf_counter() - start, time.process_time() - cpu, sum(solving))


def bare_products(layers: list[TrainedLayer], n: int, n_jobs: int) -> _Fit:
    """The float32 products of all nodes and n samples: of their sums, and of projections and features."""
    rng = np.random.default_rng(0)
    seconds = cpu = 0.0
    with threads(n_jobs) as run:
        for layer in layers:
            T, projected = layer.plan.frontend_size, layer.plan.pca is not None
            nodes = [_matrices(layer.node(p)) for p in range(layer.plan.fields.n_nodes)]
            widest = max(T, *(matrix.shape[1] for matrix in nodes[0]))
            Z = rng.standard_normal((widest, TILE), np.float32)

            def work(p: int, Z: np.ndarray = Z, T: int = T, nodes: Any = nodes, projected: bool = projected) -> None:
                for lo in range(0, n, TILE):
                    part = Z[:, : min(TILE, n - lo)]
                    part[:T] @ part[:T].T
                    for matrix in nodes[p][:projected] + nodes[p]:  # projections for sums, and for features
                        matrix @ part[: matrix.shape[1]]

            start, cpu_start = time.perf_counter(), time.process_time()
            run(work, layer.plan.fields.n_nodes)
            seconds, cpu = seconds + time.perf_counter() - start, cpu + time.process_time() - cpu_start
    return _Fit(seconds, cpu, 0.0)


def _matrices(node: Node) -> list[np.ndarray]:
    """What a node multiplies samples with."""
    projection = node.frontend.projection
    rest = np.hstack([node.rest_inputs, node.rest_slow])
    given = [node.slow, rest] if projection is None else [projection.matrix, node.slow, rest]
    return [matrix.astype(np.float32) for matrix in given]


def _solving(cases: _Cases) -> dict[str, float]:
    """Seconds for all nodes, from some of each layer: ours, and of LAPACK's drivers for the same eigenpairs."""
    total = {"ours": 0.0, "drivers": 0.0}
    with one_blas_thread():
        for key, kept in cases.kept.items():
            for case in kept:
                node = solve_node(*case)
                tasks = {"ours": lambda: solve_node(*case), "drivers": lambda: _drivers(node, *case)}  # noqa: B023
                for name, timing in take_turns(tasks, 3).items():
                    total[name] += timing.best * cases.counts[key] / len(kept)
    return total | {"ratio": total["ours"] / total["drivers"]}


def _drivers(node: Node, cov: Any, frontend: Any, shift: Any, options: Any) -> None:
    """The eigenpairs that a node needs: slow features, residual components, and directions without variance.

    Variables are made regular first, which no driver does; the time of that is not counted for them, nor is anything
    else that a node needs besides eigenpairs.
    """
    n, inputs = frontend.n_expanded, frontend.layout.input_rows
    C, A, X = cov.C[:n, :n].copy(), cov.C_dot[:n, :n], cov.plain[np.ix_(inputs, inputs)]
    variance = np.maximum(np.diag(C), 1e-30)
    n_wanted = min(options.n_components if options.n_slow is None else options.n_slow, node.rank)
    n_rest = len(node.rest_inputs)
    if node.rank < n:
        scipy.linalg.eigh(C, subset_by_index=[0, n - node.rank - 1], check_finite=False)
        C, A, variance = C[: node.rank, : node.rank].copy(), A[: node.rank, : node.rank], variance[: node.rank]
    C.flat[:: len(C) + 1] += 1e-4 * variance
    scipy.linalg.eigh(A, C, subset_by_index=[0, n_wanted - 1], driver="gvx", check_finite=False)
    if n_rest:
        scipy.linalg.eigh(X, subset_by_index=[len(X) - n_rest, len(X) - 1], check_finite=False)


def _there_and_back(net: HiGSFA, images: np.ndarray, rounds: int = 3) -> list[dict[str, Any]]:
    """Images per second on one core, against the bare products with the nodes' own matrices."""
    features = net.transform(images)
    trained: list[TrainedLayer] = net._trained
    nodes = [layer.node(p) for layer in trained for p in range(layer.plan.fields.n_nodes)]
    encoders = [matrix for node in nodes for matrix in _matrices(node)]
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
    weights = np.concatenate([matrix.ravel() for node in nodes for matrix in _matrices(node)])
    timings = take_turns({"image": lambda: net.transform(image), "reading": lambda: weights @ weights}, rounds)
    return {
        "ms": 1e3 * timings["image"].best,
        "reading_ms": 1e3 * timings["reading"].best,
        "ratio": timings["image"].over(timings["reading"]),
    }


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
