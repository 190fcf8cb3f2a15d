"""Fits that are interrupted after everything they write, and must end in the bits of one that was not.

A process of its own, because a fit that waits for itself would not come back. Arguments: a folder for checkpoints
"""

import dataclasses
import faulthandler
import itertools
import pathlib
import sys

import numpy as np

import higsfa.training.budget as budget
import higsfa.training.checkpoints as checkpoints
import higsfa.training.network as driver
from higsfa import HiGSFA, Layer
from higsfa.graphs import ClusteredGraph, SerialGraph

PLACES = ("memory", "disk", "nowhere")
LAYERS = [
    Layer(2, 2, 3, pca=2, expansion="identity | quadratic", n_slow=1),
    Layer(2, 1, 3, n_slow=1),
    Layer(2, 1, 3, n_slow=1, shared=True),
    Layer(2, n_components=3, n_slow=1),
]


class Interrupted(BaseException):
    pass


def places_of_features():
    """The input and three layers, each in every place, each pair of neighbours in all nine."""
    for a, b in itertools.product(range(3), repeat=2):
        yield PLACES[a], PLACES[b], PLACES[(a + b) % 3], PLACES[(a + 2 * b) % 3]


def force(places):
    """Let features wait in these places, whatever there is memory for."""
    make_budget = driver.make_budget

    def forced(*args, **kwargs):
        budget = make_budget(*args, **kwargs)
        layers = [
            dataclasses.replace(layer, place=place, nodes_at_once=2)
            for layer, place in zip(budget.layers, [*places[1:], "nowhere"], strict=True)
        ]
        return dataclasses.replace(budget, input_place=places[0], layers=tuple(layers))

    return forced


def write_and_stop(path, content):
    path.write_bytes(content)
    raise Interrupted


def main(folder):
    faulthandler.dump_traceback_later(300, exit=True)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((230, 8)), {"age": rng.uniform(0, 1, 230), "kind": rng.integers(0, 2, 230)}
    driver.NETWORK_BLOCK, budget.NETWORK_TILE, checkpoints.INTERVAL = 50, 20, 0.0
    make_budget, write = driver.make_budget, checkpoints.write_atomically

    def network(n_jobs):
        graph = SerialGraph("age", n_groups=5) + ClusteredGraph("kind")
        return HiGSFA(LAYERS, graph=graph, n_jobs=n_jobs, spill=folder)

    whole = network(1).fit(X, y).transform(X)
    n_fits = 0
    for number, places in enumerate(places_of_features()):
        n_jobs = 1 if number % 3 == 1 else 2
        driver.make_budget = force(places)
        checkpoints.write_atomically = write_and_stop
        here = pathlib.Path(folder, str(number))
        while True:
            n_fits += 1
            try:
                found = network(n_jobs).fit(X, y, checkpoint=here)
                break
            except Interrupted:
                pass
        driver.make_budget, checkpoints.write_atomically = make_budget, write
        assert np.array_equal(found.transform(X), whole), (places, n_jobs)
    print(n_fits)


if __name__ == "__main__":
    main(*sys.argv[1:])
