"""What heads bring: before, shared and chosen covariances, on principal components and features of networks.

    python benchmarks/heads.py
    python benchmarks/heads.py --data digits,fashion --sizes 50,200 --draws 1

Percent right, or mean absolute error, on test samples; "before" is a covariance for each class on all features. Absent
data are skipped. The table is in docs/heads.md. One core: half an hour for all.
"""

import argparse

import numpy as np
from _data import SIZES, Absent, draw
from _timing import print_table
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from higsfa import HiGSFA, LabelHead
from higsfa.graphs import LabelGraph

HEADS = {
    "before": {"n_used_features": None, "covariance": "separate"},
    "all, shared": {"n_used_features": None, "covariance": "shared"},
    "all, auto": {"n_used_features": None},
    "default": {},
}
N_PCA = {"digits": 40, "fashion": 60, "fairface": 150}


def features(name, images):
    """Pairs of training and test features, by the way they are made."""
    flat, flat_new = (X.reshape(len(X), -1).astype(float) for X in (images.X, images.X_new))
    if n := N_PCA.get(name.partition("-")[0]):
        model = PCA(min(n, len(flat)), random_state=0).fit(flat)
        yield "PCA", model.transform(flat), model.transform(flat_new)
    nets = {"network": HiGSFA()}
    if name == "faces-age":
        nets["label graph"] = HiGSFA(graph=LabelGraph(n_harmonics=3))
    for kind, net in nets.items():
        net.fit(images.X, images.y)
        yield kind, net.transform(images.X), net.transform(images.X_new)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=",".join(SIZES))
    parser.add_argument("--sizes", help="sizes of training sets; by default those of _data.SIZES")
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    rows = {}
    for name in options.data.split(","):
        sizes = SIZES[name] if options.sizes is None else map(int, options.sizes.split(","))
        for size, seed in ((size, seed) for size in sizes for seed in range(options.draws)):
            try:
                images = draw(name, size, seed)
            except Absent as reason:
                print(reason)
                break
            for kind, Y, Y_new in features(name, images):
                found = [images.score(LabelHead(**params).fit(Y, images.y).predict(Y_new)) for params in HEADS.values()]
                rows.setdefault((name, size, kind), []).append(found)
    table = [
        [f"{n} {size:,}", kind, *(f"{score:.2f}" for score in np.mean(own, axis=0))]
        for (n, size, kind), own in rows.items()
    ]
    print_table("percent right, or mean absolute error", ["training set", "features", *HEADS], table)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
