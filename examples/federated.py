"""Three parties train one network on digits; none shows its images.

    python examples/federated.py

Each party has some of scikit-learn's 1,797 images of 8 x 8 pixels. In every round each writes the sums of its images to
a file in a folder, reads those of the others, adds them and solves. At the end all have the network that one party
would have trained on all images. Printed are the files of each round, and the largest difference.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits

from higsfa import HiGSFA, Layer, load, save

NETWORK = HiGSFA(
    [
        Layer((4, 4), stride=(2, 2), pca=10, n_components=8, n_slow=4),
        Layer((3, 3), n_components=20, n_slow=8),
    ],
    graph="clustered",
    input_shape=(8, 8),
)
SIZES = (200, 500, 1097)


def main() -> None:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    parties = np.split(order, np.cumsum(SIZES)[:-1])
    networks = [clone(NETWORK) for _ in parties]
    with tempfile.TemporaryDirectory() as folder:
        for number, k in enumerate(NETWORK.federated_rounds(), 1):
            files = [Path(folder) / f"round{number}-party{party}.higsfa" for party in range(len(parties))]
            for network, rows, file in zip(networks, parties, files, strict=True):
                save(network.layer_statistics(k, X[rows], y[rows]), file)
            for network in networks:
                sums = sum(load(file) for file in files)
                network.solve_layer(k, sums)
            size = sum(file.stat().st_size for file in files) / 2**20
            print(f"round {number}: {sums!r}, {size:.1f} MiB in all")
    whole = clone(NETWORK).fit(X, y)
    for party, network in enumerate(networks):
        deltas = np.abs(network.delta_values_ - whole.delta_values_).max()
        features = np.abs(network.transform(X) - whole.transform(X)).max()
        print(f"party {party}: largest difference of Delta values {deltas:.1e}, of features {features:.1e}")


if __name__ == "__main__":
    main()
