"""Memory of a fit from disk, and two Dask workers against one.

    python benchmarks/out_of_core.py

Fits a pyramid on 64 x 64 images from a .npy file, with 10,000, 40,000 and 80,000 of them, each in a process of its own
whose peak resident memory is reported.
Then fits 65,536 of them on a cluster of one and of two workers.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent

FIT = """
import json, resource, sys, time
import numpy as np
from higsfa import presets, sources
from higsfa.graphs import SerialGraph

source = sources.npy(sys.argv[1])[: int(sys.argv[2])]
age = np.random.default_rng(0).uniform(16, 77, len(source))
graph, none = SerialGraph(n_groups=32), {"shrinkage": 0.0}
net = presets.pyramid((64, 64), 40, front=None, graph=graph, layer_params=none, n_jobs=2, memory_limit=sys.argv[3])
start = time.perf_counter()
net.fit(source, age)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"n": len(source), "seconds": time.perf_counter() - start, "peak_mib": peak}))
"""


def write_images(path, n):
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(n, 64, 64))
    rng = np.random.default_rng(0)
    for lo in range(0, n, 1000):
        coarse = rng.normal(128, 40, (min(1000, n - lo), 8, 8))
        noise = rng.normal(0, 10, (len(coarse), 64, 64))
        out[lo : lo + 1000] = np.clip(np.kron(coarse, np.ones((1, 8, 8))) + noise, 0, 255)
    out.flush()


def dask_seconds(path, n, workers):
    from distributed import Client, LocalCluster

    from higsfa import presets, sources
    from higsfa.graphs import SerialGraph

    age = np.random.default_rng(0).uniform(16, 77, n)
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster):
        graph, none = SerialGraph(n_groups=32), {"shrinkage": 0.0}
        net = presets.pyramid((64, 64), 40, front=None, graph=graph, layer_params=none, engine="dask")
        start = time.perf_counter()
        net.fit(sources.npy(path)[:n], age)
        return time.perf_counter() - start


def main():
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/images.npy"
        write_images(path, 80_000)
        for n in (10_000, 40_000, 80_000):
            done = subprocess.run(
                [sys.executable, "-c", FIT, path, str(n), "350 MiB"], capture_output=True, text=True, check=False
            )
            print(done.stdout or done.stderr[-500:], flush=True)
            results[f"fit {n}"] = json.loads(done.stdout)
        seconds = {workers: dask_seconds(path, 65_536, workers) for workers in (1, 2)}
        results["dask seconds"] = seconds
        results["two workers over one"] = seconds[2] / seconds[1]
        print(json.dumps(results, indent=1))
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "out_of_core.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
