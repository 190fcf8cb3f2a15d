"""HiGSFA against HGSFA and PCA on real photographs: slowness and reconstruction on unseen faces.

Needs ../shared/data/fairface64.npz (FairFace, Karkkainen and Joo 2021, CC BY 4.0); says so and skips without it.
Labels of the data set are what annotators saw in pictures, not facts about people.
"""

import json
import pathlib
import time

import numpy as np
from sklearn.decomposition import PCA

from higsfa import HGSFA, HiGSFA, presets
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.metrics import label_ordered_delta, reconstruction_error

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent.parent / "shared" / "data" / "fairface64.npz"


def linear_reconstruction(Y, X, Y_new):
    """The paper's global linear model x ~ D y + c, fitted on training data."""
    A = np.column_stack([Y, np.ones(len(Y))]).astype(np.float64)
    return np.column_stack([Y_new, np.ones(len(Y_new))]) @ np.linalg.lstsq(A, X, rcond=None)[0]


def main():
    if not DATA.exists():
        print(f"skipped: {DATA} is not there")
        return
    data = np.load(DATA)
    train = data["split"] == "train"
    images, unseen = data["images"][train], data["images"][~train]
    labels = {name: data[name][train] for name in ("age", "gender", "race")}
    age = data["age"][~train]
    graph = SerialGraph("age", n_groups=32) + ClusteredGraph("gender") + ClusteredGraph("race")
    flat, flat_unseen = images.reshape(len(images), -1).astype(np.float32), unseen.reshape(len(unseen), -1)
    rows = {}
    for name, network in (("HiGSFA", HiGSFA), ("HGSFA", HGSFA)):
        net = presets.pyramid((64, 64), n_components=75, network=network, graph=graph, n_jobs=2)
        start = time.perf_counter()
        net.fit(images, labels)
        seconds = time.perf_counter() - start
        Y, Y_new = net.transform(images), net.transform(unseen)
        top_down = net.inverse_transform(Y_new).reshape(len(unseen), -1)
        rows[name] = {
            "delta_train_graph": [float(v) for v in graph.build(labels).delta(Y[:, :3])],
            "delta_unseen_age_ordered": [float(v) for v in label_ordered_delta(Y_new[:, :3], age)],
            "e_rec_global": float(reconstruction_error(flat_unseen, linear_reconstruction(Y, flat, Y_new))),
            "e_rec_top_down": float(reconstruction_error(flat_unseen, top_down)),
            "seconds": seconds,
        }
        print(net)
    pca = PCA(75, random_state=0).fit(flat)
    Y_new = pca.transform(flat_unseen)
    rows["PCA"] = {
        "delta_unseen_age_ordered": [float(v) for v in label_ordered_delta(Y_new[:, :3], age)],
        "e_rec_global": float(reconstruction_error(flat_unseen, pca.inverse_transform(Y_new))),
    }
    for name, row in rows.items():
        print(name, json.dumps(row))
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "fairface_features.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
