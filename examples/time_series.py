"""Four time series, drawn here: a particle in two wells, a landscape at two times, a plant that drifts, sessions.

    python examples/time_series.py [folder for figures]

The numbers that it prints are those of docs/time-series.md.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter
from scipy.stats import chi2
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from higsfa import SFA
from higsfa.metrics import delta_intervals, vamp_score

# --- 1. Two wells: molecules, climate, neurons with two states


def two_wells(n: int, seed: int, n_channels: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """A particle that noise kicks from one well to the other now and then; channels see it bent, mixed and noisy."""
    rng = np.random.default_rng(seed)
    x = np.empty(n)
    x[0], step = 1.0, 0.05
    kicks = np.sqrt(2 * 0.35 * step) * rng.normal(size=n)
    for t in range(1, n):
        x[t] = x[t - 1] - step * 4 * x[t - 1] * (x[t - 1] ** 2 - 1) + kicks[t]
    mixing = np.random.default_rng(0).normal(size=(3, n_channels))
    fast = rng.normal(size=(n, 2))
    channels = np.column_stack([x + 0.3 * fast[:, 0], fast[:, 1], fast[:, 0]]) @ mixing
    return channels + 0.3 * rng.normal(size=channels.shape), x


def wells() -> dict[str, Any]:
    """The slowest feature tells the well, and its time scale is that of the jumps."""
    training = [two_wells(20_000, seed)[0] for seed in (1, 2, 3)]
    unseen, x = two_wells(20_000, 9)
    lags = (5, 20, 100)
    models = [SFA(n_components=2, lag=lag, delays=4, node_weights="degree").fit(training) for lag in lags]
    sfa = models[-1]
    y = sfa.transform(unseen)
    deep = np.abs(x) > 0.7  # in a well, not on the way
    right = np.mean((y[deep, 0] > 0) == (x[deep] > 0))
    well = pd.Series(np.sign(np.where(deep, x, np.nan))).ffill().to_numpy()  # the last one that it was in
    jumps = np.count_nonzero(np.diff(well) != 0)
    return {
        "in the right well": max(right, 1 - right),
        f"time scales at lags {lags}": np.array([model.timescales_[0] for model in models]),
        "second time scale at lag 5": models[0].timescales_[1],
        "time scale of the jumps": len(x) / (2 * jumps),
        "VAMP-2 of unseen data": vamp_score(y, lag=100),
        "figure": (y, x),
    }


# --- 2. Change: two pictures of one landscape


def landscape(seed: int = 0, size: int = 120, n_bands: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two pictures (pixels, bands) of fields and forest, in other light and haze, and which pixels have changed."""
    rng = np.random.default_rng(seed)

    def smooth(width: float) -> np.ndarray:
        field = gaussian_filter(rng.normal(size=(size, size)), width)
        return (field - field.mean()) / field.std()

    cover = np.stack([smooth(6) for _ in range(4)], axis=-1) @ rng.normal(size=(4, n_bands))
    changed = np.zeros((size, size), dtype=bool)
    for _ in range(14):
        i, j = rng.integers(0, size - 12, 2)
        changed[i : i + rng.integers(5, 12), j : j + rng.integers(5, 12)] = True
    other = np.stack([smooth(6) for _ in range(4)], axis=-1) @ rng.normal(size=(4, n_bands))
    later = np.where(changed[..., None], cover + 0.8 * other, cover)
    light, haze = rng.normal(size=n_bands), rng.normal(size=n_bands)
    first = cover + 1.5 * smooth(10)[..., None] * light + 0.3 * rng.normal(size=cover.shape)
    later = later * rng.uniform(0.7, 1.4, n_bands) + rng.normal(size=n_bands) + 1.5 * smooth(10)[..., None] * light
    later = later + 1.0 * smooth(3)[..., None] * haze + 0.3 * rng.normal(size=cover.shape)
    return first.reshape(-1, n_bands), later.reshape(-1, n_bands), changed.ravel()


def changes(first: np.ndarray, later: np.ndarray, n_rounds: int = 30) -> np.ndarray:
    """How much each pixel has changed: squared differences of slow features, iterated with weights.

    Each pixel is a recording of two samples. Pixels that seem to have changed count less in the next round.
    """
    both = np.stack([(one - one.mean(axis=0)) / one.std(axis=0) for one in (first, later)], axis=1)
    weight = np.ones(len(both))
    for _ in range(n_rounds):
        pairs = np.stack([weight, np.zeros(len(both))], axis=1)  # of the pair that begins with each sample
        sfa = SFA(node_weights="degree").fit(both, pair_weight=pairs)
        features = sfa.transform(both)
        differences = features[:, 1] - features[:, 0]
        differences = differences - np.average(differences, axis=0, weights=weight)
        spread = np.average(differences**2, axis=0, weights=weight)
        distance = (differences**2 / spread).sum(axis=1)
        before, weight = weight, np.maximum(chi2.sf(distance, differences.shape[1]), 1e-6)
        if np.abs(weight - before).max() < 1e-3:
            break
    return distance


def change() -> dict[str, Any]:
    """How well three distances tell pixels that have changed: the area under the ROC curve."""
    found: dict[str, Any] = {"slow features, iterated": [], "plain differences": [], "PCA of differences": []}
    for seed in range(5):
        first, later, changed = landscape(seed)
        standard = [(one - one.mean(axis=0)) / one.std(axis=0) for one in (first, later)]
        difference = standard[1] - standard[0]
        found["plain differences"].append(roc_auc_score(changed, (difference**2).sum(axis=1)))
        components = PCA(2).fit_transform(difference)
        found["PCA of differences"].append(roc_auc_score(changed, (components**2).sum(axis=1)))
        distance = changes(first, later)
        found["slow features, iterated"].append(roc_auc_score(changed, distance))
    return found | {"figure": (first, later, changed, difference, distance)}


# --- 3. A plant: drift, another operating point, a fault


def plant(n: int, seed: int, *, shift: float = 0.0, drift: float = 0.0, fault: float = 0.0) -> np.ndarray:
    """Twelve sensors of a process with slow and faster states. From half of the time on: a new operating point
    (`shift`), a slow drift, or a control loop that oscillates (`fault`)."""
    rng = np.random.default_rng(seed)
    tau, states = np.array([60.0, 30.0, 4.0, 2.0]), np.zeros((n, 4))
    a = np.exp(-1 / tau)
    noise = rng.normal(size=states.shape) * np.sqrt(1 - a**2)
    for t in range(1, n):
        states[t] = a * states[t - 1] + noise[t]
    later = np.maximum(0, np.arange(n) - n // 2)
    states[:, 0] += shift * (1 - np.exp(-later / 20.0)) + drift * later / n
    states[:, 1] += fault * np.sin(later)
    mixing = np.random.default_rng(1).normal(size=(4, 12))
    return states @ mixing + 0.2 * rng.normal(size=(n, 12))


class Monitor:
    """Slow T2 says where the process is, speed how fast it moves; limits are quantiles of training data."""

    def __init__(self, X: np.ndarray, n_slow: int = 2, level: float = 0.99) -> None:
        self.sfa = SFA(n_components=n_slow).fit(X)
        self.limits = np.quantile(self.statistics(X), level, axis=0)

    def statistics(self, X: np.ndarray) -> np.ndarray:
        """T2 and speed of each sample but the first, (n - 1, 2)."""
        y = self.sfa.transform(X)
        speed = np.diff(y, axis=0) ** 2 / self.sfa.delta_values_
        return np.column_stack([(y[1:] ** 2).sum(axis=1), speed.sum(axis=1)])

    def alarms(self, X: np.ndarray) -> np.ndarray:
        """Share of samples beyond each limit."""
        return np.asarray((self.statistics(X) > self.limits).mean(axis=0))


def monitoring() -> dict[str, Any]:
    """What the two statistics say to normal days and to three others, in the second half of the day."""
    monitor = Monitor(plant(20_000, 0))
    cases = {
        "normal": plant(4000, 1),
        "new operating point": plant(4000, 2, shift=8.0),
        "drift": plant(4000, 3, drift=16.0),
        "oscillation": plant(4000, 4, fault=1.0),
    }
    found: dict[str, Any] = {name: monitor.alarms(X[len(X) // 2 :]) for name, X in cases.items()}
    model = SFA(n_components=2)
    for batch in np.split(cases["new operating point"], 40):  # the stream forgets the old point
        model.partial_fit(batch, forgetting=0.95)
    still = model.transform(cases["new operating point"][-1000:])
    return found | {"T2 after adapting": float((still**2).sum(axis=1).mean()), "figure": (monitor, cases)}


# --- 4. Sessions: tables with gaps and missing values


def session(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """A table with a time index; electrodes drift from session to session, and some samples are lost."""
    rng = np.random.default_rng(seed)
    latent = gaussian_filter(rng.normal(size=n), 25)
    latent = (latent - latent.mean()) / latent.std()
    other = rng.normal(size=(n, 5))
    mixing = np.random.default_rng(7).normal(size=(6, 10))
    X = np.column_stack([latent, other]) @ mixing + 3.0 * rng.normal(size=10) + 0.5 * rng.normal(size=(n, 10))
    X[rng.integers(0, n, 3), rng.integers(0, 10, 3)] = np.nan
    index = pd.date_range("2026-03-01 09:00", periods=n, freq="20ms") + pd.Timedelta(days=seed)
    table = pd.DataFrame(X, index=index, columns=[f"electrode{k}" for k in range(10)])
    kept = np.ones(n, dtype=bool)
    kept[n // 3 : n // 3 + 20] = False  # the recorder stopped for a moment
    return table[kept], latent[kept]


def sessions() -> dict[str, Any]:
    """Sessions as a list, against the same rows as one recording."""
    days = [session(n, seed) for seed, n in enumerate((1200, 900, 1500, 1100))]
    tables = [table - table.mean() for table, _ in days]
    unseen, latent = session(1400, 11)
    unseen = unseen - unseen.mean()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sfa = SFA(n_components=1, shrinkage="auto", lag=3).fit(tables)
        of_sessions = SFA(n_components=1).fit(tables)
        joined = SFA(n_components=1).fit(pd.concat(tables).dropna().to_numpy())
    y = sfa.transform(unseen)[:, 0]
    there = ~np.isnan(y)
    interval = delta_intervals(y[:, None], lag=3)
    return {
        "warning": str(caught[0].message),
        "correlation with what was hidden": abs(np.corrcoef(y[there], latent[there])[0, 1]),
        "Delta, training": sfa.delta_values_[0],
        "Delta, held out": sfa.held_out_delta_values_[0],
        "Delta, unseen": (interval.delta_values[0], interval.low[0], interval.high[0]),
        "shrinkage": sfa.shrinkage_,
        "transitions of one recording": joined.statistics_.sums.edge_weight / 2,
        "transitions of sessions": of_sessions.statistics_.sums.edge_weight / 2,
        "figure": (sfa, tables, unseen),
    }


CASES = {"Two wells": wells, "Change": change, "A plant": monitoring, "Sessions": sessions}


def draw(found: dict[str, dict[str, Any]], folder: Path) -> None:
    """The figures of the page."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib.figure import Figure

    from higsfa.plots import plot_feature_plane, plot_slow_features, plot_unseen_delta, plot_weights

    y, x = found["Two wells"]["figure"]
    shown = np.column_stack([x, y])[:3000]
    plot_slow_features(shown, names=["hidden", "feature 1", "feature 2"]).savefig(folder / "time_wells.png", dpi=110)
    figure = Figure(figsize=(5.4, 4.2), layout="constrained")
    plot_feature_plane(y, color=x, label="hidden position", ax=figure.subplots())
    figure.savefig(folder / "time_plane.png", dpi=110)

    first, later, changed, difference, distance = found["Change"]["figure"]
    size = round(np.sqrt(len(first)))
    figure = Figure(figsize=(10, 2.6), layout="constrained")
    panels = {
        "first": first[:, :3],
        "later": later[:, :3],
        "plain differences": (difference**2).sum(axis=1),
        "slow features": distance,
        "truth": changed.astype(float),
    }
    for ax, (name, values) in zip(figure.subplots(1, 5), panels.items(), strict=True):
        low, high = np.quantile(values, [0.02, 0.98], axis=0)
        ax.imshow(np.clip((values - low) / (high - low), 0, 1).reshape(size, size, *values.shape[1:]), cmap="gray")
        ax.set_title(name, fontsize="medium")
        ax.set(xticks=[], yticks=[])
    figure.savefig(folder / "time_change.png", dpi=110)

    monitor, cases = found["A plant"]["figure"]
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(2, len(cases), sharex=True, sharey="row")
    for column, (name, X) in zip(axes.T, cases.items(), strict=True):
        values = monitor.statistics(X)
        for ax, one, limit in zip(column, values.T, monitor.limits, strict=True):
            ax.plot(one, color="tab:blue", linewidth=0.5)
            ax.axhline(limit, color="tab:red", linewidth=1)
            ax.set_yscale("log")
            ax.set_ylim(1e-2, 1e3)
            ax.margins(x=0)
        column[0].set_title(name, fontsize="medium")
        column[1].set_xlabel("sample")
    axes[0, 0].set_ylabel("slow T2")
    axes[1, 0].set_ylabel("speed")
    figure.savefig(folder / "time_monitor.png", dpi=110)

    _, tables, unseen = found["Sessions"]["figure"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cuts
        whole = SFA(lag=3).fit(tables)
    figure = Figure(figsize=(7, 4), layout="constrained")
    plot_unseen_delta(whole, tables, unseen, ax=figure.subplots())
    figure.savefig(folder / "time_unseen.png", dpi=110)
    plot_weights(whole, n_features=3).savefig(folder / "time_weights.png", dpi=110)


def main(folder: str | None = None) -> None:
    found = {name: case() for name, case in CASES.items()}
    for name, results in found.items():
        print(f"\n{name}")
        for key, value in results.items():
            if key != "figure":
                shown = np.array2string(np.asarray(value), precision=3) if not isinstance(value, str) else value
                print(f"  {key}: {shown}")
    if folder is not None:
        draw(found, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
