"""Networks against the bare matrix product: marginal cost, eigen-solvers, memory, transform, and scaling.

    python benchmarks/network.py            all of it, about 15 minutes on two cores
    python benchmarks/network.py --quick    small sizes, to see that it works

The paper's HiGSFA G3 network on 96 x 96 uint8 images, two threads, BLAS held at one thread each. Marginal cost is the
time to fit twice as many images minus the time to fit the others; the bare product is float32 ``Z @ Z.T`` of the same
sizes, tile by tile, on the same threads, timed right before and after.
"""

import argparse
import json
import pathlib
import resource
import time

import numpy as np

import higsfa.training.network as network_module
from higsfa import presets
from higsfa.training.layers import threads

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
TILE = 2048


def draw_images(n, size=96, seed=0):
    """Smooth random images with an age that shows in fine structure; quick, and deterministic."""
    rng = np.random.default_rng(seed)
    labels = {
        "age": rng.uniform(16, 77, n),
        "gender": rng.integers(0, 2, n),
        "race": rng.integers(0, 2, n),
    }
    images = np.empty((n, size, size), np.uint8)
    for lo in range(0, n, 1000):
        m = min(1000, n - lo)
        coarse = rng.normal(128, 40, (m, size // 8, size // 8))
        coarse += 15 * labels["gender"][lo : lo + m, None, None] * np.sin(np.arange(size // 8))
        texture = rng.normal(0, 1, (m, size, size)) * (labels["age"][lo : lo + m, None, None] / 5)
        images[lo : lo + m] = np.clip(np.kron(coarse, np.ones((1, 8, 8))) + texture, 0, 255)
    return images, labels


def bare_product(plans, n, n_jobs):
    """Seconds for the float32 products of all nodes and n samples."""
    rng = np.random.default_rng(0)
    seconds = 0.0
    with threads(n_jobs) as run:
        for plan in plans:
            Z = rng.standard_normal((plan.frontend_size, TILE)).astype(np.float32)

            def work(_, Z=Z):
                for lo in range(0, n, TILE):
                    part = Z[:, : min(TILE, n - lo)]
                    part @ part.T

            start = time.perf_counter()
            run(work, plan.fields.n_nodes)
            seconds += time.perf_counter() - start
    return seconds


def timed_fit(net, images, labels):
    """Seconds of a fit, and seconds of one core that went into eigen-solvers (solving nodes)."""
    solving = []
    solve = network_module.solve_node

    def timed_solve(*args):
        start = time.thread_time()
        node = solve(*args)
        solving.append(time.thread_time() - start)
        return node

    network_module.solve_node = timed_solve
    try:
        start = time.perf_counter()
        net.fit(images, labels)
        return time.perf_counter() - start, sum(solving), len(solving)
    finally:
        network_module.solve_node = solve


def speed(n, repeats, n_jobs=2):
    """Marginal cost per image against the bare product."""
    images, labels = draw_images(2 * n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    half = {name: values[:n] for name, values in labels.items()}
    net = presets.higsfa_g3(n_jobs=n_jobs)
    plans = net._planned((96, 96))
    small, large, bare, solving = [], [], [], []
    for _ in range(repeats):
        bare.append(bare_product(plans, n, n_jobs))
        small.append(timed_fit(net, images[:n], half)[0])
        seconds, solved, nodes = timed_fit(net, images, labels)
        large.append(seconds)
        solving.append(solved)
        bare.append(bare_product(plans, n, n_jobs))
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    marginal, floor = (min(large) - min(small)) / n, min(bare) / n
    one = presets.higsfa_g3(n_jobs=1)
    one._adopt(net._trained, (96, 96))
    start = time.perf_counter()
    one.transform(images[:n])
    per_second = n / (time.perf_counter() - start)
    return {
        "n": [n, 2 * n],
        "threads": n_jobs,
        "fit_seconds": [min(small), min(large)],
        "marginal_ms_per_image": 1e3 * marginal,
        "bare_ms_per_image": 1e3 * floor,
        "ratio": marginal / floor,
        "solving_core_seconds": min(solving),
        "nodes": nodes,
        "peak_gib_beyond_images": peak,
        "transform_images_per_second_per_core": per_second,
    }


def scaling(sizes, counts, fixed_size, fixed_count, repeats):
    """Fit times of the quadratic 1-D network for several input sizes and numbers of samples, and their exponents."""
    rng = np.random.default_rng(0)

    def seconds(size, count):
        X = np.cumsum(rng.standard_normal((count, size)).astype(np.float32), axis=0) * np.float32(0.1)
        X += rng.standard_normal((count, size)).astype(np.float32)
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            presets.qhsfa_1d(size, k=8, n_jobs=2).fit(X)
            times.append(time.perf_counter() - start)
        return min(times)

    by_size = [seconds(size, fixed_count) for size in sizes]
    by_count = [seconds(fixed_size, count) for count in counts]

    def exponent(x, y):
        return float(np.polyfit(np.log(x), np.log(y), 1)[0])

    return {
        "sizes": sizes,
        "seconds_by_size": by_size,
        "exponent_size": exponent(sizes, by_size),
        "counts": counts,
        "seconds_by_count": by_count,
        "exponent_count": exponent(counts, by_count),
        "fixed": {"size": fixed_size, "count": fixed_count},
    }


def plot_scaling(result, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    panels = (
        ("counts", "seconds_by_count", "exponent_count", "samples N", f"{result['fixed']['size']} inputs"),
        ("sizes", "seconds_by_size", "exponent_size", "inputs I", f"{result['fixed']['count']:,} samples"),
    )
    for ax, (x, y, exponent, label, fixed) in zip(axes, panels, strict=True):
        ax.loglog(result[x], result[y], "o-", color="#1f5fa8", label=f"measured, exponent {result[exponent]:.2f}")
        ax.loglog(result[x], np.array(result[x]) * result[y][0] / result[x][0], "--", color="0.5", label="linear")
        ax.set_xticks(result[x], [f"{value:,}" for value in result[x]])
        ax.set_yticks(result[y], [f"{value:.2g}" for value in result[y]])
        ax.minorticks_off()
        ax.set_xlabel(f"{label} ({fixed})")
        ax.set_ylabel("seconds to fit")
        ax.legend(frameon=False)
    figure.suptitle("Quadratic 1-D network (k = 8): cost is linear in samples and inputs")
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--skip-speed", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    results = {}
    if not arguments.skip_speed:
        results["g3"] = speed(500 if arguments.quick else 10_000, 1 if arguments.quick else arguments.rounds)
        for key, value in results["g3"].items():
            print(f"{key:40s} {value}", flush=True)
    if arguments.quick:
        results["scaling"] = scaling([64, 128, 256], [500, 1000, 2000], 64, 500, 1)
    else:
        results["scaling"] = scaling([256, 512, 1024, 2048], [4000, 8000, 16000, 32000], 512, 8000, 3)
    print(json.dumps(results["scaling"], indent=1))
    if not arguments.quick:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / "network.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(known | results, indent=1) + "\n")
        plot_scaling(results["scaling"], pathlib.Path(__file__).resolve().parent.parent / "docs/images/scaling.png")


if __name__ == "__main__":
    main()
