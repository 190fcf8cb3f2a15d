"""Write the model file of protocol 1 that every later version must read, and what the model makes of its inputs.

    python tests/models/make_protocol1.py [FOLDER]

writes protocol1.higsfa and protocol1.npz. Once a version with this protocol is released, they are never written again.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

from higsfa import HiGSFA, LabelHead, Layer, save
from higsfa.graphs import ClusteredGraph, SerialGraph

N_INPUTS = 8
"""Inputs whose features and estimates are stored."""


def data(n=200):
    """Images of a blob that grows with age, left or right of the middle, with some noise."""
    rng = np.random.default_rng(0)
    age, side = np.linspace(16, 77, n), np.arange(n) % 2
    x, y = np.meshgrid(np.linspace(-1, 1, 6), np.linspace(-1, 1, 6))
    center = np.where(side, 0.3, -0.3)[:, None, None]
    width = (0.2 + age / 100)[:, None, None]
    images = np.exp(-((x - center) ** 2 + y**2) / width**2) + 0.05 * rng.standard_normal((n, 6, 6))
    return images, pd.DataFrame({"age": age, "side": np.array(["left", "right"])[side]})


def pipeline():
    """A network with principal components, clipping, a sum of graphs and shared nodes, and a head for two labels."""
    layers = [
        Layer((3, 3), None, 4, pca=5, n_slow=2, expansion="identity | power0.8"),
        Layer((2, 1), None, 5, expansion="identity | quadratic[:3]", delta_threshold=1.9, shared=True),
        Layer((1, 2), None, 5),
    ]
    graph = SerialGraph("age", n_groups=8) + 0.5 * ClusteredGraph("side")
    net = HiGSFA(layers, graph=graph, memory_limit="1 GiB", n_jobs=2)
    head = LabelHead(n_used_features={"age": 3, "side": "cv"}, n_classes={"age": 4}, regularization=0.1)
    return Pipeline([("net", net), ("head", head)])


def main(folder: Path) -> None:
    images, labels = data()
    model = pipeline().fit(images, labels)
    inputs = images[:: len(images) // N_INPUTS][:N_INPUTS]
    features = model[:-1].transform(inputs)
    save(model, folder / "protocol1.higsfa")
    np.savez(
        folder / "protocol1.npz",
        inputs=inputs,
        features=features,
        back=model[0].inverse_transform(features),
        age=model.predict(inputs)["age"].to_numpy(float),
        side=model.predict_proba(inputs, label="side"),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
