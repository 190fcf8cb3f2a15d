"""The paper's training set size, once: 10,530 synthetic faces x 22 distorted copies of 96 x 96, HiGSFA G3, two cores.

    make paper-scale        or        python benchmarks/paper_scale.py [--faces 10530] [--copies 22]

Prints a log with time and memory after every layer; the paper took 10 hours on 24 cores and 128 GB.
"""

import argparse
import json
import pathlib
import resource
import time

import numpy as np

import higsfa.training.driver as driver
from higsfa import LabelHead, presets, sources
from higsfa.datasets import make_faces
from higsfa.images import Distortion
from higsfa.metrics import classification_rate, mean_absolute_error

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def rss_gib():
    for line in open("/proc/self/status"):  # noqa: SIM115
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 2**20
    return float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faces", type=int, default=10_530)
    parser.add_argument("--copies", type=int, default=22)
    parser.add_argument("--memory", default="6 GiB")
    arguments = parser.parse_args()
    start = time.perf_counter()
    log = []

    def say(text):
        line = f"{time.perf_counter() - start:7.0f} s  {rss_gib():5.2f} GiB  {text}"
        log.append(line)
        print(line, flush=True)

    images, labels = make_faces(arguments.faces, 96, random_state=0, n_jobs=2)
    unseen, unseen_labels = make_faces(2000, 96, random_state=1, n_jobs=2)
    say(f"{arguments.faces} faces drawn")
    train = sources.repeat(images, arguments.copies, Distortion(seed=0))
    repeated = {name: labels[name][train.sample_index] for name in ("age", "gender", "race")}
    net = presets.higsfa_g3(n_jobs=2, memory=arguments.memory)
    say(f"fit of {len(train)} images: {net.estimate(len(train))}")
    begin = time.perf_counter()
    train_layer = driver.train_layer

    def logged(*arguments):
        layer, features = train_layer(*arguments)
        shape = "x".join(map(str, layer.plan.fields.shape))
        say(f"layer of {shape} nodes trained")
        return layer, features

    driver.train_layer = logged
    net.fit(train, repeated)
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    say(f"fit took {seconds / 60:.1f} minutes, peak memory {peak:.2f} GiB")
    S = sources.repeat(images, 3, Distortion(seed=1))
    head = LabelHead(n_features={"age": 5, "gender": 4, "race": 6}, n_classes={"age": 39})
    head.fit(net.transform(S), {name: labels[name][S.sample_index] for name in ("age", "gender", "race")})
    found = head.predict(net.transform(unseen))
    result = {
        "images": len(train),
        "minutes": seconds / 60,
        "peak_gib": peak,
        "age_mae": float(mean_absolute_error(unseen_labels["age"], found["age"])),
        "age_mae_chance": float(np.mean(np.abs(unseen_labels["age"] - np.median(labels["age"])))),
        "gender": float(classification_rate(unseen_labels["gender"], found["gender"])),
        "race": float(classification_rate(unseen_labels["race"], found["race"])),
    }
    say(f"on 2,000 unseen faces: {json.dumps(result)}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "paper_scale.json").write_text(json.dumps(result | {"log": log}, indent=1) + "\n")


if __name__ == "__main__":
    main()
