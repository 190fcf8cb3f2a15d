"""Age, gender and race on real photographs: one HiGSFA network against usual methods on the same pixels.

    python benchmarks/fairface.py                        all but the convolutional network
    python benchmarks/fairface.py --cnn-python PYTHON    with it; PYTHON has torch, see fairface_cnn.py
    python benchmarks/fairface.py --quick                few images of the training part, to see that it works
    python benchmarks/fairface.py --holdout              tests on 2,000 of the training images, as for choosing settings

Needs ../shared/data/fairface64.npz (FairFace, Karkkainen and Joo 2021, CC BY 4.0) or --data; says so and skips without
it. Labels of the data set are what annotators saw in pictures, not facts about people; estimates of them are guesses
about pictures, for research only, and no basis for decisions about a person. See docs/faces.md.
"""

import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

import numpy as np
from _timing import environment, print_table, write_json
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR
from threadpoolctl import threadpool_limits

from higsfa import HiGSFA, LabelHead, Layer, presets, sources
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.images import Distortion, oriented_edges

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent.parent / "shared" / "data" / "fairface64.npz"
LABELS = ("age", "gender", "race")
MEMORY = "3 GiB"
DISTORTION = Distortion(seed=0, shift=2.0, rotation=8.0, scale=0.08, contrast=0.2, mirror=True)


# ---------------------------------------------------------------------------------------------- pixels


def standardised(images):
    """Pixels with mean 0 and deviation 1 in each image."""
    x = images.astype(np.float32)
    return (x - x.mean((1, 2), keepdims=True)) / (x.std((1, 2), keepdims=True) + 5)


# ---------------------------------------------------------------------------------------------- networks


def graph():
    """One graph for three labels, and for two products of them: more classes, so more slow features."""
    single = SerialGraph("age", n_groups=9) + ClusteredGraph("gender") + ClusteredGraph("race")
    return single + ClusteredGraph("gender_race") + ClusteredGraph("age_gender")


def with_products(labels):
    """Labels, and the products of them that `graph` wants."""
    gender = labels["gender"]
    return {**labels, "gender_race": gender * 7 + labels["race"], "age_gender": gender * 100 + labels["age"]}


def edge_network(n_jobs):
    """Five layers for the cells of `oriented_edges`, tuned by hand on held-out images (docs/faces.md)."""
    expansion = "identity | power0.8{} | normalized_quadratic[:{}]"
    options = {"shrinkage": 0.01, "pad": True}
    layers = [
        Layer((4, 4), (2, 2), 60, pca=100, expansion=expansion.format("", 20), n_slow=16, **options),
        Layer((3, 1), (2, 1), 90, expansion=expansion.format("", 10), n_slow=24, **options),
        Layer((1, 3), (1, 2), 110, expansion=expansion.format("[:60]", 8), **options),
        Layer((3, 1), (1, 1), 130, expansion=expansion.format("[:60]", 6), **options),
        Layer((1, 3), (1, 1), 150, expansion=expansion.format("[:60]", 6), **options),
    ]
    return HiGSFA(layers, graph=graph(), input_shape=(16, 16, 13), front=None, memory_limit=MEMORY, n_jobs=n_jobs)


def pixel_network(n_jobs):
    """The library's design for any input, on pixels."""
    own = {"graph": graph(), "memory_limit": MEMORY, "n_jobs": n_jobs}
    return presets.pyramid((64, 64), n_components=75, front=None, layer_params={"shrinkage": 0.0}, **own)


def both_sides(function, images):
    """Mean of a function over images and their mirror images."""
    return (function(images) + function(np.ascontiguousarray(images[:, :, ::-1]))) / 2


class Trained:
    """A network with its front end, and the time that training it took."""

    def __init__(self, net, front, images, labels, copies):
        train = sources.repeat(images, copies, DISTORTION)
        repeated = {name: values[train.sample_index] for name, values in with_products(labels).items()}
        self.net, self.front = net, front
        start, cpu_start = time.perf_counter(), time.process_time()
        net.fit(sources.map(train, front), repeated)
        self.times = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu_start}

    def features(self, images):
        return both_sides(lambda some: self.net.transform(self.front(some)), images)


def gaussian_head():
    return LabelHead(covariance="separate", n_used_features={"age": 10, "gender": 20, "race": 20}, n_classes={"age": 9})


def svm_head():
    """Support vector machines with Gaussian kernels."""
    age, other = SVR(C=10, epsilon=3, cache_size=500), SVC(C=1, cache_size=500)
    regressor = {name: make_pipeline(StandardScaler(), age if name == "age" else other) for name in LABELS}
    return LabelHead(n_used_features={"age": 20, "gender": 20, "race": 80}, n_classes={"age": 9}, regressor=regressor)


# ---------------------------------------------------------------------------------------------- other methods


def hog(images):
    """Histograms of oriented gradients: cells of 8 x 8 pixels, 9 orientations, blocks of 2 x 2 cells (L2-Hys)."""
    n, h, w = images.shape
    gy, gx = np.gradient(images.astype(np.float32), axis=(1, 2))
    strength, place = np.hypot(gx, gy), np.mod(np.arctan2(gy, gx), np.pi) * 9 / np.pi
    cells = np.empty((n, h // 8, w // 8, 9), np.float32)
    for k in range(9):
        distance = np.abs((place - k - 0.5 + 4.5) % 9 - 4.5)
        cells[..., k] = (strength * np.maximum(0, 1 - distance)).reshape(n, h // 8, 8, w // 8, 8).sum(axis=(2, 4))
    blocks = np.concatenate([cells[:, i : h // 8 - 1 + i, j : w // 8 - 1 + j] for i in (0, 1) for j in (0, 1)], axis=-1)
    for limit in (0.2, np.inf):
        blocks = np.minimum(blocks / (np.linalg.norm(blocks, axis=-1, keepdims=True) + 1e-3), limit)
    return blocks.reshape(n, -1)


def flat(function):
    return lambda images: np.concatenate(
        [
            function(images[lo : lo + 1000]).reshape(len(images[lo : lo + 1000]), -1)
            for lo in range(0, len(images), 1000)
        ]
    )


def principal(describe, images, n_components=200):
    """Principal components of a description of images, averaged over mirror images."""
    pca = PCA(n_components, svd_solver="randomized", random_state=0).fit(describe(images))
    return lambda some: both_sides(lambda side: pca.transform(describe(side)), some)


def estimate(machines, Y, labels, Y_new):
    """Estimates of all labels by one machine each."""
    return LabelHead(None, regressor=machines, n_classes={"age": 9}).fit(Y, labels).predict(Y_new)


def by_pixels(images, labels, new):
    describe = principal(flat(standardised), images)
    Y = describe(images)
    svr = SVR(C=20, epsilon=3, gamma=1 / float(np.var(Y, axis=0).sum()), cache_size=500)
    lda = LinearDiscriminantAnalysis()
    return estimate({"age": svr, "gender": lda, "race": lda}, Y, labels, describe(new))


def by_hog(images, labels, new):
    Y, Y_new = (both_sides(flat(hog), some) for some in (images, new))
    svr = LinearSVR(C=0.03, epsilon=3, loss="squared_epsilon_insensitive", dual=False, intercept_scaling=30)
    svc = LinearSVC(C=0.03, dual=False)
    return estimate({"age": svr, "gender": svc, "race": svc}, Y, labels, Y_new)


def by_edges(images, labels, new):
    describe = principal(flat(oriented_edges), images)
    Y = describe(images)
    gamma = 1 / float(np.var(Y, axis=0).sum())
    svr, svc = SVR(C=20, epsilon=3, gamma=gamma, cache_size=500), SVC(C=3, gamma=gamma, cache_size=500)
    return estimate({"age": svr, "gender": svc, "race": svc}, Y, labels, describe(new))


def chance(train, test):
    """The median age and the most frequent classes of the training set."""
    best = {"age": np.median(train["age"])} | {n: np.bincount(train[n]).argmax() for n in LABELS[1:]}
    return {name: np.full(len(test["age"]), value) for name, value in best.items()}


OTHERS = {"pixels, PCA, SVR / LDA": by_pixels, "HOG, linear SVM": by_hog, "oriented edges, PCA, RBF SVM": by_edges}


def convolutional(python, seconds, images, labels, test_images, test_labels, copies):
    """The row of fairface_cnn.py, run by another Python on the same distorted copies.

    One thread: processor time counts, and on a busy machine torch's threads spend much of theirs on waiting.
    """
    train = sources.repeat(images, copies, DISTORTION)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "data.npz"
        pixels = np.asarray(train).reshape(len(images), copies, *images.shape[1:])
        tests = {f"test_{name}": values for name, values in test_labels.items()}
        np.savez(path, copies=pixels, test=test_images, **labels, **tests)
        command = [python, HERE / "fairface_cnn.py", path, "--seconds", f"{seconds:.1f}", "--threads", "1"]
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
        done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, env=clean)
    return json.loads(done.stdout.splitlines()[-1])


# ---------------------------------------------------------------------------------------------- the table


def scores(estimates, truth):
    return {
        "age_mae": float(np.mean(np.abs(estimates["age"] - truth["age"]))),
        "gender_rate": float(np.mean(estimates["gender"] == truth["gender"])),
        "race_rate": float(np.mean(estimates["race"] == truth["race"])),
    }


def load(path, holdout, quick):
    """Images and labels for training and for testing; `val` is looked at with neither `holdout` nor `quick`."""
    with np.load(path, allow_pickle=False) as data:
        train, test = (np.flatnonzero(data["split"] == name) for name in ("train", "val"))
        labels = {name: data[name].astype(np.int64) for name in LABELS}
        images = data["images"]
    if holdout or quick:
        strata = np.digitize(labels["age"], [10, 20, 30, 40, 50]) * 14 + labels["gender"] * 7 + labels["race"]
        train, test = train_test_split(train, test_size=2000, random_state=0, stratify=strata[train])
    if quick:
        train, test = train[:1500], test[:500]
    return [(images[rows], {name: values[rows] for name, values in labels.items()}) for rows in (train, test)]


class Table:
    """Rows by method; each is shown when it is known."""

    def __init__(self, truth):
        self.truth, self.rows = truth, {}

    def add(self, name, estimates, **times):
        self.put(name, scores(estimates, self.truth) | times)

    def put(self, name, row):
        self.rows[name] = row
        print(f"{name}: {row['age_mae']:.2f} years, {row['gender_rate']:.1%}, {row['race_rate']:.1%}", flush=True)

    def show(self):
        lines = [
            [
                name,
                f"{row['age_mae']:.2f}",
                f"{100 * row['gender_rate']:.1f}",
                f"{100 * row['race_rate']:.1f}",
                f"{row['cpu_seconds']:.0f}" if "cpu_seconds" in row else "",
            ]
            for name, row in self.rows.items()
        ]
        header = ["method", "age: MAE, years", "gender: %", "race: %", "training: processor s"]
        print_table("FairFace, 64 x 64 grey, unseen images", header, lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    parser.add_argument("--copies", type=int, default=8, help="distorted copies of each training image")
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--cnn-python", help="Python of an environment with torch")
    parser.add_argument("--cnn-times", type=float, nargs="+", default=[1.0], help="CNN's time, in units of HiGSFA's")
    parser.add_argument("--pixels", action="store_true", help="also train a network on pixels, without the front end")
    parser.add_argument("--holdout", action="store_true")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if not args.data.exists():
        print(f"skipped: {args.data} is not there")
        return
    (images, labels), (new, truth) = load(args.data, args.holdout, args.quick)
    copies = 2 if args.quick else args.copies
    table = Table(truth)
    machine = environment(("numpy", "scipy", "scikit-learn", "higsfa"), args.n_jobs)
    with threadpool_limits(args.n_jobs):
        measure(table, images, labels, new, copies, args)
    table.show()
    if not (args.quick or args.holdout):
        about = {"n_train": len(images), "n_test": len(new), "copies": copies, "n_jobs": args.n_jobs}
        write_json(HERE / "results" / "fairface.json", {**about, "environment": machine, "rows": table.rows})


def measure(table, images, labels, new, copies, args):
    """All rows of the table."""
    table.add("chance", chance(labels, table.truth))
    trained = Trained(edge_network(args.n_jobs), oriented_edges, images, labels, copies)
    print(trained.net)
    Y, Y_new = trained.features(images), trained.features(new)
    for name, head in (("Gaussians", gaussian_head()), ("RBF SVM", svm_head())):
        table.add(f"HiGSFA on oriented edges, {name}", head.fit(Y, labels).predict(Y_new), **trained.times)

    for name, method in OTHERS.items():
        start = time.process_time()
        estimates = method(images, labels, new)
        table.add(name, estimates, cpu_seconds=time.process_time() - start)

    for factor in args.cnn_times if args.cnn_python else ():
        name = "CNN, the same processor time" if factor == 1 else f"CNN, {factor:g} times as long"
        seconds = factor * trained.times["cpu_seconds"]
        table.put(name, convolutional(args.cnn_python, seconds, images, labels, new, table.truth, copies))

    if args.pixels:
        trained = Trained(pixel_network(args.n_jobs), standardised, images, labels, copies)
        Y, Y_new = trained.features(images), trained.features(new)
        table.add("HiGSFA on pixels, Gaussians", gaussian_head().fit(Y, labels).predict(Y_new), **trained.times)


if __name__ == "__main__":
    main()
