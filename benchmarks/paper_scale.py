"""The paper's training set size, once: 10,530 synthetic faces x 22 distorted copies of 96 x 96, two cores.

    make paper-scale        or        python benchmarks/paper_scale.py [--faces 10530] [--copies 22] [--methods HiGSFA]

HiGSFA G3, HGSFA G3 and PCA are trained on the same images, which are distorted once and wait in a file. Each gets the
same kind of label head and of linear decoder, trained on the S set (3 other distorted copies of each face), and is
measured on 2,000 unseen faces. Prints a log with time and memory after every layer, a table and the paper's claims; the
paper took 10 hours on 24 cores and 128 GB. Results are added to benchmarks/results/paper_scale.json.
"""

import argparse
import json
import os
import pathlib
import resource
import tempfile
import time

import numpy as np
import scipy.sparse.linalg
from claims import LABELS, evaluate, main_claims, print_head, print_row

import higsfa.training.network as driver
from higsfa import LabelHead, presets, sources
from higsfa.datasets import make_faces
from higsfa.images import Distortion
from higsfa.metrics import chance_level, classification_rate, mean_absolute_error

RESULTS = pathlib.Path(__file__).resolve().parent / "results" / "paper_scale.json"
PAPER_FEATURES = {
    "HiGSFA": {"age": 5, "gender": 4, "race": 6},
    "HGSFA": {"age": 5, "gender": 7, "race": 5},
    "PCA": {"age": 54, "gender": 60, "race": 54},
}
START = time.perf_counter()
LOG = []


class StreamedPCA:
    """75 principal components of the pixels, from one pass over the images."""

    def fit(self, images, labels):
        n_pixels = int(np.prod(images.shape))
        total, second = np.zeros(n_pixels), np.zeros((n_pixels, n_pixels), np.float32)
        shift = images.take(np.arange(512)).reshape(512, -1).mean(axis=0).astype(np.float32)
        for start in range(0, len(images), 4096):
            X = images.take(np.arange(start, min(start + 4096, len(images)))).reshape(-1, n_pixels) - shift
            total += X.sum(axis=0, dtype=np.float64)
            second += X.T @ X
        mean = total / len(images)
        covariance = second.astype(np.float64) / len(images) - np.outer(mean, mean)
        self.mean = shift + mean
        values, axes = scipy.sparse.linalg.eigsh(covariance, 75)
        self.axes = axes[:, np.argsort(-values)]
        return self

    def transform(self, images):
        source = sources.as_source(images)
        blocks = np.array_split(np.arange(len(source)), max(1, len(source) // 2048))
        return np.concatenate([(source.take(b).reshape(len(b), -1) - self.mean) @ self.axes for b in blocks])


METHODS = {
    "HiGSFA": lambda memory: presets.higsfa_g3(n_jobs=2, memory_limit=memory),
    "HGSFA": lambda memory: presets.hgsfa_g3(n_jobs=2, memory_limit=memory),
    "PCA": lambda memory: StreamedPCA(),
}


def rss_gib():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 2**20
    return float("nan")


def say(text):
    line = f"{time.perf_counter() - START:7.0f} s  {rss_gib():5.2f} GiB  {text}"
    LOG.append(line)
    print(line, flush=True)


def log_layers():
    """Say when a layer has been trained."""
    train_layer = driver.train_layer

    def logged(*arguments):
        layer, features = train_layer(*arguments)
        say(f"layer of {'x'.join(map(str, layer.plan.fields.shape))} nodes trained")
        return layer, features

    driver.train_layer = logged


def with_paper_features(name, method, supervised, unseen):
    """Scores with the paper's numbers of features for the head."""
    head = LabelHead(covariance="separate", n_used_features=PAPER_FEATURES[name], n_classes={"age": 39}).fit(
        method.transform(supervised[0]), supervised[1]
    )
    found = head.predict(method.transform(unseen[0]))
    rates = {label: classification_rate(unseen[1][label], found[label]) for label in LABELS[1:]}
    return {"mae": mean_absolute_error(unseen[1]["age"], found["age"]), **rates}


def run(name, train, supervised, unseen, memory):
    """Train and measure one method."""
    LOG.clear()
    method = METHODS[name](memory)
    estimate = f": {method.estimate_cost(len(train[0]))}" if hasattr(method, "estimate_cost") else ""
    say(f"{name}, fit of {len(train[0])} images{estimate}")
    begin, cpu = time.perf_counter(), os.times()
    method.fit(*train)
    seconds, used = time.perf_counter() - begin, os.times()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    user, system = used.user - cpu.user, used.system - cpu.system
    say(f"fit took {seconds / 60:.1f} minutes, peak memory so far {peak:.2f} GiB")
    say(f"processor time {user / 60:.1f} minutes, and {system / 60:.1f} in the system")
    mean_image = np.mean(supervised[0].take(np.arange(len(supervised[0]))), axis=0)
    own = evaluate(method, supervised, unseen, (supervised[0].take(np.arange(len(supervised[0]))), mean_image))
    own |= {"seconds": seconds, "user": user, "system": system, "peak_gib": peak, "images": len(train[0])}
    own["paper_features"] = with_paper_features(name, method, supervised, unseen)
    return own | {"log": list(LOG)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=int, default=10_530)
    parser.add_argument("--copies", type=int, default=22)
    parser.add_argument("--memory", default="6 GiB")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--folder", help="for the distorted images; they stay there and are used again")
    arguments = parser.parse_args()
    log_layers()
    images, labels = make_faces(arguments.faces, 96, random_state=0, n_jobs=2)
    unseen, unseen_labels = make_faces(2000, 96, random_state=1, n_jobs=2)
    say(f"{arguments.faces} faces drawn")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.folder or temporary)
        sets = []
        for name, copies, seed in (("network", arguments.copies, 0), ("supervised", 3, 1)):
            distorted = sources.repeat(images, copies, Distortion(seed=seed))
            stored = sources.cache(distorted, folder / f"{name}.npy")
            sets.append((stored, {label: labels[label][stored.sample_index] for label in LABELS}))
            say(f"{len(stored)} distorted copies written")
        scores = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        truth = {label: unseen_labels[label] for label in LABELS}
        scores["chance"] = {
            "mae": chance_level(truth["age"], "mae"),
            "rmse": chance_level(truth["age"], "rmse"),
            **{label: chance_level(truth[label], "cr") for label in LABELS[1:]},
        }
        for name in arguments.methods:
            scores[name] = run(name, *sets, (unseen, truth), arguments.memory)
            RESULTS.write_text(json.dumps(scores, indent=1) + "\n")
    print_head()
    for name, own in scores.items():
        print_row(name, own)
        if "paper_features" in own:
            print(f"  with the paper's numbers of features: {json.dumps(own['paper_features'])}")
    if set(METHODS) <= set(scores):
        for claim, comparison, holds in main_claims(scores):
            print(f"{'holds' if holds else 'FAILS'}: {claim}: {comparison}")


if __name__ == "__main__":
    main()
