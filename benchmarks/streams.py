"""What it costs to fit batch by batch, beside one fit on all samples.

    python benchmarks/streams.py

GSFA on a label graph, batches of 100 samples, one BLAS thread; processor time, the best of several runs, in turn.
"""

import argparse
import time

import numpy as np
from _timing import print_table
from threadpoolctl import threadpool_limits

from higsfa import GSFA
from higsfa.graphs import LabelGraph

GRAPH = LabelGraph(label_range=(0, 100))
BATCH = 100


def whole(X, y):
    return GSFA(5, graph=GRAPH).fit(X, y).delta_values_


def in_batches(X, y):
    model = GSFA(5, graph=GRAPH)
    for lo in range(0, len(X), BATCH):
        model.partial_fit(X[lo : lo + BATCH], y[lo : lo + BATCH])
    return model.delta_values_


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rng, rows = np.random.default_rng(0), []
    for n_variables in (120, 1000):
        X = rng.standard_normal((BATCH * options.batches, n_variables))
        y = rng.uniform(0, 100, len(X))
        best, found = {}, {}
        with threadpool_limits(1):
            for _ in range(options.repeats):
                for function in (whole, in_batches):
                    start = time.process_time()
                    found[function] = function(X, y)
                    best[function] = min(best.get(function, np.inf), time.process_time() - start)
        error = np.abs(found[whole] - found[in_batches]).max()
        a, b = best[whole], best[in_batches]
        per_batch = f"{1e3 * b / options.batches:.2f}"
        rows.append([str(n_variables), f"{a:.2f}", f"{b:.2f}", f"{b / a:.2f}", per_batch, f"{error:.0e}"])
    header = ["variables", "fit, s", "batches, s", "ratio", "ms a batch", "largest difference of Delta"]
    print_table(f"{options.batches} batches of {BATCH} samples", header, rows)


if __name__ == "__main__":
    main()
