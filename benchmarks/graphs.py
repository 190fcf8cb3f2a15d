"""Which graph for a label: serial against label functions for numbers, clustered against codes for classes.

    python benchmarks/graphs.py

One network for each graph, the same label head on its first features. Numbers: age of synthetic faces. Classes: the
digits of scikit-learn, few and many for training. Means over five draws. About five minutes on two cores.
"""

import argparse

import numpy as np
from _timing import print_table
from sklearn.datasets import load_digits

from higsfa import HiGSFA, LabelHead, Layer, datasets, presets
from higsfa.graphs import ClusteredGraph, CodeGraph, LabelGraph, SerialGraph

FEATURES = (3, 5, 10, 20)


def scores(net, X, y, X_new, y_new, score):
    Y = net.fit(X, y).transform(X)
    Y_new = net.transform(X_new)
    return [score(LabelHead(n_used_features=k).fit(Y[:, :k], y).predict(Y_new[:, :k]), y_new) for k in FEATURES]


def faces(n_train, seed, graph):
    X, labels = datasets.make_faces(n_train + 1000, size=48, random_state=seed)
    age = np.asarray(labels["age"], dtype=float)
    net = presets.pyramid((48, 48), 60, graph=graph, n_jobs=-1)
    mae = lambda found, truth: float(np.mean(np.abs(found - truth)))  # noqa: E731
    return scores(net, X[:n_train], age[:n_train], X[n_train:], age[n_train:], mae)


def digits(n_train, seed, graph):
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:n_train], order[-700:]
    layers = [Layer((4, 4), (2, 2), n_components=10), Layer((3, 3), n_components=25)]
    net = HiGSFA(layers, input_shape=(8, 8), graph=graph)
    rate = lambda found, truth: 100 * float(np.mean(found == truth))  # noqa: E731
    return scores(net, X[train], y[train].astype(str), X[test], y[test].astype(str), rate)


CASES = [
    ("age, 1,000 faces, MAE", faces, 1000, {"serial": SerialGraph(), "label": LabelGraph()}),
    ("age, 4,000 faces, MAE", faces, 4000, {"serial": SerialGraph(), "label": LabelGraph()}),
    ("digits, 300, %", digits, 300, {"clustered": ClusteredGraph(), "code": CodeGraph()}),
    ("digits, 1,000, %", digits, 1000, {"clustered": ClusteredGraph(), "code": CodeGraph()}),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for name, measure, n_train, graphs in CASES:
        for graph, recipe in graphs.items():
            found = np.array([measure(n_train, seed, recipe) for seed in range(options.draws)])
            mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found))
            rows.append([name, graph, *(f"{m:.2f} ± {e:.2f}" for m, e in zip(mean, error, strict=True))])
            print(*rows[-1], flush=True)
    print_table("Label estimates from the first features", ["data", "graph", *map(str, FEATURES)], rows)


if __name__ == "__main__":
    main()
