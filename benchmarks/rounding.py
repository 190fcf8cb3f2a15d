"""How far a rounding error in the pixels moves the features of a network on unseen images.

    python benchmarks/rounding.py

The networks of the demonstration (`higsfa demo`) on its 6,000 synthetic faces, in single precision, again with every
pixel multiplied by 1 + 2^-24 or 1 - 2^-24 at random, and in double precision. About four minutes on two cores.
"""

import argparse

import numpy as np
from _timing import print_table

from higsfa import HGSFA, HiGSFA, LabelHead, datasets, metrics, presets
from higsfa.graphs import ClusteredGraph, SerialGraph

GRAPH = SerialGraph("age", n_groups=32) + ClusteredGraph("gender") + ClusteredGraph("race")


def measure(kind, X, labels, n_train):
    net = presets.pyramid(
        X.shape[1:], 60, front=None, network=kind, graph=GRAPH, layer_params={"shrinkage": 0.0}, n_jobs=-1
    )
    Y = net.fit(X[:n_train], {name: values[:n_train] for name, values in labels.items()}).transform(X)
    deltas = metrics.label_ordered_delta(Y[n_train:, :1], labels["age"][n_train:])
    age = (
        LabelHead(covariance="separate", n_used_features=20)
        .fit(Y[:n_train], labels["age"][:n_train])
        .predict(Y[n_train:])
    )
    return deltas[0], np.mean(np.abs(age - labels["age"][n_train:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-train", type=int, default=6000)
    parser.add_argument("--n-test", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    images, labels = datasets.make_faces(options.n_train + options.n_test, size=64, random_state=0)
    labels = {name: np.asarray(labels[name]) for name in ("age", "gender", "race")}
    cases = {"single precision": images.astype(np.float32), "double precision": images.astype(np.float64)}
    for seed in range(options.seeds):
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], images.shape)
        cases[f"single, moved, seed {seed}"] = (images * (1 + signs * 2.0**-24)).astype(np.float32)
    rows = []
    for name, X in cases.items():
        row = [name]
        for kind in (HiGSFA, HGSFA):
            delta, error = measure(kind, X, labels, options.n_train)
            row += [f"{delta:.3f}", f"{error:.2f}"]
        rows.append(row)
        print(*row, flush=True)
    header = ["pixels", "HiGSFA: Delta 1", "age, years", "HGSFA: Delta 1", "age, years"]
    print_table("Unseen faces, after rounding errors in the pixels", header, rows)


if __name__ == "__main__":
    main()
