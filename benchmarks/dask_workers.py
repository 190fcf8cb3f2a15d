"""What two Dask workers gain on a job of about a minute, beside two threads.

    python benchmarks/dask_workers.py

A pyramid on pictures of 32 x 32 pixels in a file that all read. One and two threads, one and two worker processes of
one thread each, in turn. Workers share out blocks of 16,384 samples, so there must be many of these.
"""

import argparse
import pathlib
import tempfile
from contextlib import ExitStack

import numpy as np
from _data import pictures
from _timing import environment, print_table, take_turns, write_json
from scaling import on_cluster

from higsfa import presets, sources
from higsfa.graphs import SerialGraph

HERE = pathlib.Path(__file__).resolve().parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=327_680)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    images, labels = pictures(args.images, 32)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as clusters:
        path = pathlib.Path(folder) / "images.npy"
        np.save(path, images)

        def task(**how):
            own = {"graph": SerialGraph(n_groups=32), "layer_params": {"shrinkage": 0.0}, **how}
            return lambda: presets.pyramid((32, 32), 40, front=None, **own).fit(sources.npy(path), labels["age"])

        tasks = {f"threads {k}": task(n_jobs=k) for k in (1, 2)}
        tasks |= {f"workers {k}": on_cluster(clusters, k, task(engine="dask")) for k in (1, 2)}
        seconds = {name: timing.best for name, timing in take_turns(tasks, args.rounds).items()}
    gains = {kind: seconds[f"{kind} 1"] / seconds[f"{kind} 2"] for kind in ("threads", "workers")}
    rows = [[name, f"{found:.1f}"] for name, found in seconds.items()]
    rows += [[f"two {kind} gain", f"{gain:.2f}"] for kind, gain in gains.items()]
    rows.append(["workers over threads", f"{gains['workers'] / gains['threads']:.2f}"])
    print_table(f"A pyramid, {args.images:,} images", ["", "seconds, times"], rows)
    packages = ("higsfa", "numpy", "scipy", "distributed")
    found = {"environment": environment(packages, 1), "images": args.images, "seconds": seconds, "gains": gains}
    write_json(HERE / "results" / "dask_workers.json", found)


if __name__ == "__main__":
    main()
