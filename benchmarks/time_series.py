"""Time series: what a stream costs beside its bare products, and deeptime on the same tasks.

    python benchmarks/time_series.py [--samples 10000000]

One thread, processor time; the best of several runs, in turn. Bare products are those that nobody can do without: of
samples, and of differences of neighbours (X.T @ X, D.T @ D), batch by batch. Memory is the growth of the process over
the second half of the stream.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from _timing import print_table
from threadpoolctl import threadpool_limits

from higsfa import SFA
from higsfa.metrics import vamp_score

CHANNELS = 30


def make(path, n):
    """Slow signals in noise, in a file."""
    rng, X = np.random.default_rng(0), np.lib.format.open_memmap(path, "w+", np.float64, (n, CHANNELS))
    mixing, level = rng.normal(size=(CHANNELS, CHANNELS)), np.zeros(CHANNELS)
    decay = np.exp(-1 / np.geomspace(1, 1000, CHANNELS))
    from scipy.signal import lfilter

    for lo in range(0, n, 100_000):
        noise = rng.normal(size=(min(100_000, n - lo), CHANNELS)) * np.sqrt(1 - decay**2)
        for k in range(CHANNELS):
            noise[:, k], (level[k],) = lfilter([1], [1, -decay[k]], noise[:, k], zi=[level[k]])
        X[lo : lo + len(noise)] = noise @ mixing
    return X


def bare(X):
    D = X[1:] - X[:-1]
    return X.T @ X, D.T @ D


def stream(X, batch):
    """Seconds in `partial_fit`, seconds of bare products in turn, growth of memory in MiB, and the model."""
    model, ours, floor, half = SFA(n_components=5), 0.0, 0.0, 0
    for lo in range(0, len(X), batch):
        part = np.array(X[lo : lo + batch])
        start = time.process_time()
        model.partial_fit(part)
        middle = time.process_time()
        bare(part)
        floor += time.process_time() - middle
        ours += middle - start
        if half == 0 and lo >= len(X) // 2:
            half = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    model.delta_values_  # noqa: B018
    ours += time.process_time() - start
    return ours, floor, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - half) / 1024, model


def streams(n):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        X = make(Path(folder) / "stream.npy", n)
        found = {batch: stream(X, batch) for batch in (1000, 20_000)}
        whole = SFA(n_components=5).fit(X)
        for batch, (ours, floor, growth, model) in found.items():
            n_batches = n / batch
            error = np.abs(model.delta_values_ - whole.delta_values_).max()
            rows.append(
                [
                    f"{batch:,}",
                    f"{1e3 * ours / n_batches:.2f}",
                    f"{1e3 * floor / n_batches:.2f}",
                    f"{ours / floor:.2f}",
                    f"{growth:.1f}",
                    f"{error:.0e}",
                ]
            )
    header = ["batch", "ms a batch", "bare products, ms", "ratio", "growth, MiB", "difference of Delta to one fit"]
    print_table(f"a stream of {n:,} samples of {CHANNELS} channels", header, rows)


def tasks(dtype):
    """name -> (ours, deeptime's)"""
    from deeptime.decomposition import TICA, VAMP

    rng = np.random.default_rng(1)
    X = rng.normal(size=(200_000, CHANNELS)).cumsum(axis=0).astype(dtype) / 100 + rng.normal(size=(200_000, 1)).astype(
        dtype
    )
    X = X.astype(dtype)
    parts = np.split(X, 40)
    wide = rng.normal(size=(20_000, 300)).astype(dtype)

    def batches():
        model = SFA(5, lag=3, node_weights="degree")
        for part in parts:
            model.partial_fit([part])
        return model.delta_values_

    def their_batches():
        model = TICA(lagtime=3, dim=5)
        for part in parts:
            model.partial_fit((part[:-3], part[3:]))
        return model.fetch_model().singular_values

    def ours(X, **given):
        return lambda: SFA(5, node_weights="degree", **given).fit(X).delta_values_

    def tica(X, lag=1):
        return lambda: TICA(lagtime=lag, dim=5).fit(X).fetch_model().singular_values

    def delayed():
        rows = [np.hstack([part[2:], part[1:-1], part[:-2]]) for part in parts]
        return TICA(lagtime=1, dim=5).fit(rows).fetch_model().singular_values

    return {
        "TICA, one path of 200,000 x 30": (ours(X), tica(X)),
        "TICA, lag 10": (ours(X, lag=10), tica(X, 10)),
        "TICA, 40 paths": (ours(parts), tica(parts)),
        "TICA, 40 paths, 2 delays": (ours(parts, delays=2), delayed),
        "TICA, 20,000 x 300": (ours(wide), tica(wide)),
        "40 batches": (batches, their_batches),
        "VAMP-2 score": (
            lambda: vamp_score(X, lag=3),
            lambda: VAMP(lagtime=3).fit(X).fetch_model().score(r=2),
        ),
        "transform": _transforms(X, SFA(5).fit(X), TICA(lagtime=1, dim=5).fit(X).fetch_model()),
    }


def _transforms(X, ours, theirs):
    return lambda: ours.transform(X), lambda: theirs.transform(X)


def rivals(repeats):
    rows = []
    for dtype in (np.float64, np.float32):
        for name, both in tasks(dtype).items():
            best = [np.inf, np.inf]
            for _ in range(repeats):
                for k, function in enumerate(both):
                    start = time.process_time()
                    function()
                    best[k] = min(best[k], time.process_time() - start)
            rows.append([name, np.dtype(dtype).name, *(f"{1e3 * one:.1f}" for one in best), f"{best[1] / best[0]:.2f}"])
    print_table("beside deeptime", ["task", "dtype", "higsfa, ms", "deeptime, ms", "times faster"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with threadpool_limits(1):
        rivals(options.repeats)
        streams(options.samples)


if __name__ == "__main__":
    main()
