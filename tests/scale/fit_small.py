"""Fits a small network in a process of its own, so that it can be killed.

Arguments: data.npy, checkpoint or "-", memory, folder to spill to or "-", where features must wait, out.npy
"""

import sys

import numpy as np

import higsfa.training.checkpoints as checkpoints
import higsfa.training.network as driver
from higsfa import presets, sources
from higsfa.graphs import ClusteredGraph, SerialGraph


def make_labels(n):
    rng = np.random.default_rng(1)
    return {"age": rng.uniform(0, 1, n), "group": rng.integers(0, 2, n)}


def make_network(**params):
    graph = SerialGraph("age") + ClusteredGraph("group")
    return presets.pyramid((20, 20), 16, graph=graph, front=None, layer_params={"shrinkage": 0.0}, n_jobs=2, **params)


def main(data, checkpoint, memory, spill, place, out):
    driver.NETWORK_BLOCK, checkpoints.INTERVAL = 512, 0.0
    make_budget = driver.make_budget

    def checked(*args, **kwargs):
        budget = make_budget(*args, **kwargs)
        assert place in (budget.input_place, *(layer.place for layer in budget.layers[:-1])), budget
        return budget

    driver.make_budget = checked
    source = sources.npy(data)
    network = make_network(memory_limit=memory, spill=False if spill == "-" else spill)
    network.fit(source, make_labels(len(source)), checkpoint=None if checkpoint == "-" else checkpoint)
    np.save(out, network.transform(source))


if __name__ == "__main__":
    main(*sys.argv[1:])
