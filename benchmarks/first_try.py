"""What the first try gives: the default network and head against usual methods, with processor seconds.

    python benchmarks/first_try.py                       digits and Fashion-MNIST, 50 to 6,000 of each class
    python benchmarks/first_try.py --only digits

Fashion-MNIST comes from Debian's package dataset-fashion-mnist; it is skipped where that is not installed. All methods
get the images as they are, without distorted copies, and no settings: HiGSFA() with LabelHead(), and scikit-learn's
classifiers with usual values. Edges are those of `OrientedEdges()`. Seconds are of the processor, training and testing.
"""

import argparse
import gzip
import pathlib
import time

import numpy as np
from _data import FASHION
from _timing import environment, print_table, write_json
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

from higsfa import HiGSFA, LabelHead, OrientedEdges

HERE = pathlib.Path(__file__).resolve().parent


class Flat:
    """Images as rows of pixels from 0 to 1."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X.reshape(len(X), -1) / (255.0 if X.dtype == np.uint8 else 1.0)


METHODS = {
    "HiGSFA(), LabelHead()": lambda: make_pipeline(HiGSFA(), LabelHead()),
    "pixels, PCA, RBF SVM": lambda: make_pipeline(Flat(), PCA(60, random_state=0), SVC(C=5)),
    "edges, LDA": lambda: make_pipeline(OrientedEdges(), LinearDiscriminantAnalysis("lsqr", shrinkage="auto")),
    "edges, linear SVM": lambda: make_pipeline(OrientedEdges(), LinearSVC(C=0.03, dual="auto", random_state=0)),
}


def digits():
    data = load_digits()
    X = (data.images / 16).astype(np.float32)
    A, B, a, b = train_test_split(X, data.target, test_size=0.5, random_state=0, stratify=data.target)
    yield "digits, 90 of each class", A, a, B, b


def fashion():
    if not FASHION.is_dir():
        print(f"skipped: {FASHION} is not there; install dataset-fashion-mnist")
        return

    def read(name, start):
        return np.frombuffer(gzip.open(FASHION / f"{name}-ubyte.gz").read(), np.uint8, offset=start)

    X, y = read("train-images-idx3", 16).reshape(-1, 28, 28), read("train-labels-idx1", 8)
    new, truth = read("t10k-images-idx3", 16).reshape(-1, 28, 28), read("t10k-labels-idx1", 8)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X))
    for n in (50, 200, 2000, 6000):
        rows = np.sort(np.concatenate([order[y[order] == c][:n] for c in range(10)]))
        yield f"Fashion-MNIST, {n:,} of each class", X[rows], y[rows], new, truth


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["digits", "fashion"])
    args = parser.parse_args()
    rows = []
    for name, cases in (("digits", digits), ("fashion", fashion)):
        for data, X, y, new, truth in cases() if args.only in (None, name) else ():
            for method, make in METHODS.items():
                if data.startswith("digits") and method.startswith("edges"):
                    continue  # 8 x 8 pixels are too few for edges
                start = time.process_time()
                right = np.mean(make().fit(X, y).predict(new) == truth)
                seconds = time.process_time() - start
                rows.append({"data": data, "method": method, "right": float(right), "cpu_seconds": seconds})
                print(f"{data}: {method} {100 * right:.1f} %, {seconds:.0f} s", flush=True)
    if rows:
        shown = [[r["data"], r["method"], f"{100 * r['right']:.1f}", f"{r['cpu_seconds']:.0f}"] for r in rows]
        print_table("What the first try gives", ["data", "method", "right, %", "processor s"], shown)
        found = {"environment": environment(("numpy", "scikit-learn"), 1), "rows": rows}
        write_json(HERE / "results" / "first_try.json", found)


if __name__ == "__main__":
    main()
