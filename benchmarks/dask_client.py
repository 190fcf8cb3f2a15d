"""Memory of the client in a fit of many samples on two Dask workers.

    python benchmarks/dask_client.py [--samples 10000000]

The samples lie in a file (pictures of 4 x 4 pixels, drawn by this script) and are read by the workers, which also make
the tiles. The client, in whose process the scheduler runs here, holds labels, a code for every sample, and trained
nodes. Printed is its peak memory beyond what it has before the fit: imports, cluster and labels.
"""

import argparse
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import distributed
import numpy as np

import higsfa.training.network  # noqa: F401  an import of the fit
from higsfa import HiGSFA, Layer, sources
from higsfa.graphs import ClusteredGraph

DRAW = """
import sys, numpy as np
n, folder, step = int(sys.argv[1]), sys.argv[2], 100_000
rng = np.random.default_rng(0)
labels = rng.integers(0, 10, n).astype(np.int8)
np.save(f"{folder}/labels.npy", labels)
pictures = np.lib.format.open_memmap(f"{folder}/pictures.npy", mode="w+", dtype=np.uint8, shape=(n, 4, 4))
for a in range(0, n, step):
    own = labels[a : a + step, None, None]
    pictures[a : a + step] = rng.integers(0, 200, (len(own), 4, 4)) + 3 * own
"""


def resident_mib():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=10_000_000)
    n = parser.parse_args().samples
    layers = [Layer((2, 2), (2, 2), 4, n_slow=1), Layer((2, 2), (2, 2), 6, n_slow=2)]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", DRAW, str(n), folder], check=True)  # its memory is not the client's
        with (
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            distributed.Client(cluster),
        ):
            labels = np.load(f"{folder}/labels.npy")
            before, start = resident_mib(), time.perf_counter()
            net = HiGSFA(layers, graph=ClusteredGraph(), front=None, engine="dask", memory_limit="2 GiB")
            net.fit(sources.npy(f"{folder}/pictures.npy"), labels)
            seconds = time.perf_counter() - start
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{n:,} samples in {seconds:.0f} s: the client's memory had its peak {peak - before:.0f} MiB above "
                f"what it was before, with labels of {labels.nbytes / 2**20:.0f} MiB"
            )


if __name__ == "__main__":
    main()
