"""The rat in its box: slowness on unseen walks, position, place cells and head-direction cells; see docs/rat.md.

python benchmarks/rat.py                     # the whole curve, 1,250 .. 80,000 frames
python benchmarks/rat.py --sizes 1250,2500   # a part of it; what was measured is kept
python benchmarks/rat.py --figures           # figures again, from what was kept
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import _rat_figures as figures
import numpy as np
from _records import Records
from scipy.ndimage import gaussian_filter, label
from sklearn.decomposition import PCA, FastICA
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from higsfa import SFA, metrics, presets, save
from higsfa.datasets import RatBox, make_rat_views
from higsfa.graphs import SequenceGraph
from higsfa.report import write_walk

SIZES = (1250, 2500, 5000, 10_000, 20_000, 40_000, 80_000)
N_TEST = 10_000
BOX, MARGIN = RatBox(), 0.15
PLACE: dict[str, float] = {}  # the defaults: the head turns quickly
DIRECTION = {"speed": 0.3, "persistence": 1.0, "turn": 0.03, "turn_persistence": 10.0}
REGIMES = {"place": PLACE, "direction": DIRECTION}
N_COMPASS = 8  # slow features that head-direction cells are made of
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
DIRECTION_SIZE = 2500
N_PCA, PCA_FRAMES = 32, 4000
BINS = (27, 17)  # of maps of the box: squares of 0.1
N_ANGLES = 36
METHODS = ("hisfa", "hsfa", "sfa")
"""If asked for, also HiSFA with other numbers of slow features: "hisfa6", "hisfa0-32", "hisfa0-32-0-32-16-32"."""


# --- what is measured ---


def theory(walk: dict[str, Any], n: int) -> tuple[list[tuple[int, int]], Any]:
    """The slowest functions of position: products of cosines over the space that the rat reaches, slowest first."""
    sides = [side - 2 * MARGIN for side in BOX.size]
    unit = [(walk[name] - MARGIN) / side for name, side in zip("xy", sides, strict=True)]
    modes = [(i, j) for i in range(12) for j in range(12) if i + j]
    modes = sorted(modes, key=lambda mode: (mode[0] / sides[0]) ** 2 + (mode[1] / sides[1]) ** 2)[:n]
    return modes, np.column_stack([np.cos(i * np.pi * unit[0]) * np.cos(j * np.pi * unit[1]) for i, j in modes])


def place_map(activity: Any, walk: dict[str, Any]) -> Any:
    """Mean activity in squares of the box, over all directions, smoothed by one square."""
    ranges = [(MARGIN, side - MARGIN) for side in BOX.size]
    seen, total = (
        gaussian_filter(np.histogram2d(walk["x"], walk["y"], BINS, ranges, weights=w)[0], 1.0, mode="nearest")
        for w in (None, activity)
    )
    return total / np.maximum(seen, 1e-9)


def one_field(firing: Any) -> bool:
    """Whether a map has one compact place field.

    Where activity, above the median of the map, is over half of its peak, at least 90 % of the area must be one
    connected patch, and this patch at most a quarter of the box.
    """
    above = firing - np.median(firing)
    patches, n = label(above > 0.5 * above.max(), structure=np.ones((3, 3)))
    areas = np.bincount(patches.ravel())[1:]
    return bool(n and areas.max() >= 0.9 * areas.sum() and areas.max() <= 0.25 * firing.size)


def unmixed(train: Any, test: Any) -> Any:
    """Independent components of slow features, with the longer tail upwards."""
    ica = FastICA(whiten="unit-variance", random_state=0, max_iter=2000, tol=1e-3).fit(train)
    units, seen = ica.transform(test), ica.transform(train)
    return units * np.sign(((seen - seen.mean(axis=0)) ** 3).mean(axis=0))


def tuning(activity: Any, direction: Any) -> Any:
    """Mean activity by direction, over all places."""
    at = np.floor((direction + np.pi) / (2 * np.pi) * N_ANGLES).astype(int) % N_ANGLES
    return np.bincount(at, activity, N_ANGLES) / np.maximum(np.bincount(at, minlength=N_ANGLES), 1)


def one_direction(curve: Any) -> bool:
    """Whether a tuning curve is over half of its peak, above its median, in one stretch of at most 120 degrees."""
    above = curve - np.median(curve)
    high = above > 0.5 * above.max()
    return bool(np.count_nonzero(high & ~np.roll(high, 1)) == 1 and high.mean() <= 1 / 3)


def explained(features: Any, targets: Any, test_features: Any, test_targets: Any) -> tuple[Any, Any]:
    """R2 and correlation, on the test walk, of targets that are read out linearly; fitted on the training walk."""
    found = LinearRegression().fit(features, targets).predict(test_features)
    r2 = 1 - ((found - test_targets) ** 2).sum(axis=0) / ((test_targets - test_targets.mean(axis=0)) ** 2).sum(axis=0)
    pairs = zip(found.T, test_targets.T, strict=True)
    return r2, np.array([np.corrcoef(a, b)[0, 1] for a, b in pairs])


def columns(walk: dict[str, Any], *names: str) -> Any:
    return np.column_stack([walk[name] for name in names])


def compass(walk: dict[str, Any]) -> Any:
    return np.column_stack([np.cos(walk["direction"]), np.sin(walk["direction"])])


# --- training ---


class Direct:
    """Quadratic SFA on the principal components of whole views."""

    def fit(self, views: Any) -> Direct:
        rows = np.unique(np.linspace(0, len(views) - 1, min(len(views), PCA_FRAMES)).astype(int))
        pca = PCA(N_PCA, svd_solver="randomized", random_state=0)
        pca.fit(views.take(rows).reshape(len(rows), -1).astype(np.float32))
        self.pca = pca
        self.sfa = make_pipeline(StandardScaler(), SFA(n_components=32, expansion="identity | quadratic"))
        self.sfa.fit(self._projected(views))
        return self

    def transform(self, views: Any) -> Any:
        return self.sfa.transform(self._projected(views))

    def _projected(self, views: Any) -> Any:
        parts = (np.arange(a, min(a + 1000, len(views))) for a in range(0, len(views), 1000))
        return np.concatenate(
            [self.pca.transform(views.take(rows).reshape(len(rows), -1).astype(np.float32)) for rows in parts]
        )


def train(method: str, size: int, movement: dict[str, float], jobs: int, work: Path) -> dict[str, Any]:
    """Train on a walk, look at another one; features of the test walk are kept for figures."""
    views, walk = make_rat_views(size, 0, box=BOX, lazy=True, **movement)
    unseen, there = make_rat_views(N_TEST, 1, box=BOX, lazy=True, **movement)
    options: dict[str, Any] = {"n_jobs": jobs, "memory_limit": "6 GiB"}
    numbers = [int(number) for number in method.removeprefix("hisfa").split("-") if number.isdigit()]
    if numbers:
        options["n_slow"] = numbers if len(numbers) > 1 else numbers[0]
    make = Direct if method == "sfa" else presets.rat_hsfa if method == "hsfa" else presets.rat_hisfa
    model: Any = make(**({} if method == "sfa" else options))
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(views)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    Y, Z = (np.asarray(model.transform(some), dtype=np.float64) for some in (views, unseen))
    name = f"{'direction' if movement else 'place'}-{method}-{size}"
    work.mkdir(parents=True, exist_ok=True)
    np.savez(work / f"{name}.npz", train=Y[-20_000:].astype(np.float32), test=Z.astype(np.float32))
    if method != "sfa":
        save(model, work / f"{name}.higsfa")
    delta = [metrics.delta_values(some, graph=SequenceGraph()) for some in (Y, Z)]
    row: dict[str, Any] = {
        "wall_seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "delta_train": np.round(delta[0], 5).tolist(),
        "delta_test": np.round(delta[1], 5).tolist(),
        "r2_position": np.round(explained(Y, columns(walk, "x", "y"), Z, columns(there, "x", "y"))[0], 4).tolist(),
        "r2_direction": np.round(explained(Y, compass(walk), Z, compass(there))[0], 4).tolist(),
    }
    modes, wanted = theory(walk, 16)
    row["cosines"] = {
        f"{i},{j}": round(float(r), 4)
        for (i, j), r in zip(modes, explained(Y, wanted, Z, theory(there, 16)[1])[1], strict=True)
    }
    return row | units(Y, Z, there)


def units(Y: Any, Z: Any, there: dict[str, Any]) -> dict[str, Any]:
    """Place cells and head-direction cells among independent components of slow features."""
    cells = unmixed(Y, Z).T
    fields = [one_field(place_map(cell, there)) for cell in cells]
    few = unmixed(Y[:, :N_COMPASS], Z[:, :N_COMPASS]).T
    return {
        "place_fields": float(np.mean(fields)),
        "direction_fields": float(np.mean([one_direction(tuning(cell, there["direction"])) for cell in few])),
    }


def drawing() -> dict[str, float]:
    """Frames that one thread draws in a second of processor time, best of five."""
    make_rat_views(10, box=BOX)
    seconds = []
    for _ in range(5):
        start = time.process_time()
        make_rat_views(1000, box=BOX)
        seconds.append(time.process_time() - start)
    return {"frames_per_cpu_second": round(1000 / min(seconds))}


def draw(work: Path) -> None:
    """Figures and the page of the walk, from the largest HiSFA network that was kept."""
    rows = Records("rat").rows
    walks = {name: make_rat_views(N_TEST, 1, box=BOX, lazy=True, **moves) for name, moves in REGIMES.items()}
    views, walk = walks["place"]
    figures.views(IMAGES, BOX, walk)
    figures.curve(IMAGES, rows, metrics.delta_values(theory(walk, 32)[1], graph=SequenceGraph()))
    sizes = [size for size in SIZES if (work / f"place-hisfa-{size}.npz").exists()]
    if sizes:
        kept = np.load(work / f"place-hisfa-{sizes[-1]}.npz")
        Y, Z = (kept[name].astype(np.float64) for name in ("train", "test"))
        slow = [place_map(z, walk) for z in Z[:, :16].T]
        figures.maps(IMAGES, "features", slow, [str(k) for k in range(1, 17)], BOX.size, 8)
        cells = [place_map(cell, walk) for cell in unmixed(Y, Z).T]
        marks = ["" if one_field(cell) else "not one field" for cell in cells]
        figures.maps(IMAGES, "places", cells, marks, BOX.size, 8)
        write_walk(
            work / "walk.html", views[:300], {name: a[:300] for name, a in walk.items()}, Z[:300, :12], size=BOX.size
        )
        print(f"{work}/walk.html shows the walk")
    kept_there = work / f"direction-hisfa-{DIRECTION_SIZE}.npz"
    if kept_there.exists():
        kept = np.load(kept_there)
        cells = unmixed(*(kept[name][:, :N_COMPASS].astype(np.float64) for name in ("train", "test"))).T
        figures.directions(IMAGES, [tuning(cell, walks["direction"][1]["direction"]) for cell in cells])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="measure what is there already")
    parser.add_argument("--figures", action="store_true", help="only draw figures")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "higsfa-rat")
    args = parser.parse_args()
    if not args.figures and (args.again or "drawing" not in Records("rat")):
        Records("rat").add("drawing", drawing())
    cases = [(f"place/{size}", size, PLACE) for size in map(int, args.sizes.split(","))]
    cases.insert(2, (f"direction/{DIRECTION_SIZE}", DIRECTION_SIZE, DIRECTION))
    for start, size, movement in cases:
        for method in args.methods.split(",") if not movement else ["hisfa"]:
            key = f"{start}/{method}"
            if not args.figures and (args.again or key not in Records("rat")):
                row = train(method, size, movement, args.jobs, args.work)
                Records("rat").add(key, row)  # read again: another process may have added to it
                slow = f"Delta {np.mean(row['delta_test'][:6]):.4f} {np.mean(row['delta_test']):.4f}"
                cells = f"place fields {row['place_fields']:.2f}, directions {row['direction_fields']:.2f}"
                print(key, f"{row['wall_seconds']:.0f} s,", slow, "R2", row["r2_position"], cells, flush=True)
    draw(args.work)


if __name__ == "__main__":
    main()
