"""The paper's tables, for the data of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from higsfa.report.numbers import decimals_for, duration, fixed
from higsfa.report.records import Label, Method, Metrics, Score

N_DELTAS = 10
GAP = "–"
Best = Callable[[Iterable[float]], float]


@dataclass(frozen=True)
class Cell:
    text: str
    is_best: bool = False


@dataclass(frozen=True)
class Column:
    """A heading, and what to know about the numbers below it."""

    title: str
    note: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Row:
    name: str
    role: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    caption: str
    lead: str
    corner: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def accuracy_table(metrics: Metrics) -> Table | None:
    """Errors of numeric labels and rates of categorical ones, with the chance level."""
    columns = []
    for label in metrics.labels:
        scores = [method.scores(label) for method in metrics.methods]
        unit = label.unit or "lower is better"
        columns += [
            _score_column(f"{label.name} MAE", unit, [s.mae for s in scores], best=min),
            _score_column(f"{label.name} RMSE", unit, [s.rmse for s in scores], best=min),
            _score_column(f"{label.name} rate", "%", [_in_percent(s.rate) for s in scores], best=max, least=1),
        ]
    spread = ""
    if metrics.n_folds > 1:
        spread = f" Numbers are means over {metrics.n_folds} folds, ± the standard error of the mean."
    lead = (
        "How far estimates are from the truth on test samples. Errors (MAE: mean absolute, RMSE: root mean squared) "
        "are better when lower, rates of correct classes when higher. Chance is the best that a constant answer can "
        "do: a method is only worth its cost when it beats that." + spread
    )
    return _table("Accuracy on test samples", lead, "method", columns, metrics.methods)


def cumulative_table(metrics: Metrics, label: Label) -> Table | None:
    """The share of estimates within each allowed error."""
    methods = [method for method in metrics.methods if method.scores(label).cumulative]
    curves = [dict(zip(c.thresholds, c.scores, strict=True)) for m in methods if (c := m.scores(label).cumulative)]
    thresholds = sorted(set().union(*curves))
    columns = [
        _number_column(
            f"≤\N{NO-BREAK SPACE}{threshold:g}",
            "",
            [_times(100, curve.get(threshold)) for curve in curves],
            best=max,
            decimals=1,
        )
        for threshold in thresholds
    ]
    unit = f" {label.unit}" if label.unit else ""
    lead = (
        f"Percentage of test samples whose {label.name} is estimated with an error of at most so many{unit}. "
        "Higher is better."
    )
    return _table(f"Cumulative scores, {label.name}, in per cent", lead, "method", columns, methods)


def delta_table(metrics: Metrics, part: str) -> Table | None:
    """Delta values of the first features on ``"train"`` or ``"test"`` samples."""
    methods = [m for m in metrics.methods if m.delta and getattr(m.delta, part)]
    values = [getattr(method.delta, part)[:N_DELTAS] for method in methods]
    columns = [
        _number_column(_delta_name(j), "", [row[j] if j < len(row) else None for row in values], best=min, decimals=2)
        for j in range(max(map(len, values), default=0))
    ]
    order = next((f" by {m.delta.label}" for m in methods if m.delta and m.delta.label), "")
    samples = {"train": "training", "test": "test"}[part]
    lead = (
        f"How much each feature changes from one sample to the next, with the {samples} samples in order{order}. "
        "Delta: 0 is constant, 2 is noise; lower is slower."
    )
    return _table(f"Delta values of the first features, {samples} samples", lead, "method", columns, methods)


def reconstruction_table(metrics: Metrics) -> Table | None:
    methods = [m for m in metrics.methods if m.error_global is not None or m.error_top_down is not None]
    columns = [
        _count_column("features", [method.n_features for method in methods]),
        _number_column("global", "linear map", [method.error_global for method in methods], best=min, decimals=3),
        _number_column("top-down", "node by node", [method.error_top_down for method in methods], best=min, decimals=3),
    ]
    lead = (
        "How much of the input can be rebuilt from the features of test samples: 0 is all of it, 1 is no better than "
        "showing the mean image. Global uses the best linear map from features to pixels, top-down inverts the network "
        "node by node. Lower is better."
    )
    return _table("Normalised reconstruction error", lead, "method", columns, methods)


def sensitivity_table(metrics: Metrics) -> Table | None:
    settings = metrics.sensitivity
    columns = []
    for label in metrics.labels:
        rates = [_times(100, s.rate.get(label.name)) for s in settings]
        columns += [
            _number_column(f"{label.name} MAE", label.unit or "", [s.mae.get(label.name) for s in settings], best=min),
            _number_column(f"{label.name} rate", "%", rates, best=max, decimals=1),
        ]
    columns += [
        _number_column(_delta_name(j), "test", [_at(s.delta_test, j) for s in settings], best=min, decimals=2)
        for j in range(3)
    ]
    lead = (
        "The same network trained with other thresholds, below which a feature counts as slow. Rows that hardly differ "
        "mean that the threshold needs no careful tuning."
    )
    names = [f"{setting.delta_threshold:g}" for setting in settings]
    return _assemble("Sensitivity to the delta threshold", lead, "threshold", columns, names, [""] * len(names))


def layer_table(metrics: Metrics) -> Table | None:
    layers = metrics.layers
    columns = [
        _count_column("nodes", [layer.nodes for layer in layers]),
        _count_column("expanded", [layer.expanded for layer in layers], "inputs per node"),
        _count_column("features", [layer.n_components for layer in layers], "per node"),
        _number_column("slow", "mean per node", [layer.mean_n_slow for layer in layers], decimals=1),
        _number_column(f"mean {_delta_name(0)}", "over nodes", [layer.mean_delta_1 for layer in layers], decimals=2),
        _number_column(f"lowest {_delta_name(0)}", "over nodes", [layer.min_delta_1 for layer in layers], decimals=2),
    ]
    lead = (
        "The network from the pixels (layer 1) to the top. Slow features are those kept for slowness; the rest of each "
        "node's features serve reconstruction. Delta should fall from layer to layer, as nodes see more of the input."
    )
    return _assemble(
        "Layers of the network", lead, "layer", columns, [str(x.layer) for x in layers], [""] * len(layers)
    )


def cost_table(metrics: Metrics) -> Table | None:
    methods = [m for m in metrics.methods if m.fit_seconds is not None or m.transform_seconds is not None]
    columns = [
        _count_column("features", [method.n_features for method in methods]),
        _duration_column("training", [method.fit_seconds for method in methods]),
        _duration_column("extraction", [method.transform_seconds for method in methods]),
    ]
    lead = "How long it took to train each method and to extract features, on one machine. Shorter is better."
    return _table("Training and extraction", lead, "method", columns, methods)


# ---------------------------------------------------------------------- columns


def _score_column(title: str, note: str, scores: Sequence[Score | None], best: Best, least: int = 0) -> Column:
    errors = [score.se for score in scores if score and score.se is not None]
    means = [score.mean if score else None for score in scores]
    decimals = decimals_for([mean for mean in means if mean is not None], errors, least)
    texts = [
        GAP if score is None else _with_spread(fixed(score.mean, decimals), score.se, decimals) for score in scores
    ]
    return Column(title, note, _cells(texts, _rounded(means, decimals), best))


def _number_column(
    title: str, note: str, values: Sequence[float | None], best: Best | None = None, decimals: int | None = None
) -> Column:
    if decimals is None:
        decimals = decimals_for([value for value in values if value is not None])
    texts = [GAP if value is None else fixed(value, decimals) for value in values]
    return Column(title, note, _cells(texts, _rounded(values, decimals), best))


def _count_column(title: str, values: Sequence[int | None], note: str = "") -> Column:
    return Column(title, note, tuple(Cell(GAP if value is None else f"{value:,}") for value in values))


def _duration_column(title: str, values: Sequence[float | None]) -> Column:
    texts = [GAP if value is None else duration(value) for value in values]
    return Column(title, "", _cells(texts, _rounded(values, 1), min))


def _cells(texts: Sequence[str], shown: Sequence[float | None], best: Best | None) -> tuple[Cell, ...]:
    """Cells of a column, the best marked as far as the digits shown tell them apart; where all are equal, none is."""
    different = {value for value in shown if value is not None}
    winner = best(different) if best and len(different) > 1 else None
    pairs = zip(texts, shown, strict=True)
    return tuple(Cell(text, winner is not None and value == winner) for text, value in pairs)


def _rounded(values: Sequence[float | None], decimals: int) -> list[float | None]:
    return [None if value is None else round(value, decimals) for value in values]


def _with_spread(text: str, se: float | None, decimals: int) -> str:
    return text if se is None else f"{text} ± {fixed(se, decimals)}"


# ---------------------------------------------------------------------- assembly


def _table(caption: str, lead: str, corner: str, columns: Sequence[Column], methods: Sequence[Method]) -> Table | None:
    return _assemble(caption, lead, corner, columns, [m.name for m in methods], [m.role for m in methods])


def _assemble(
    caption: str, lead: str, corner: str, columns: Sequence[Column], names: Sequence[str], roles: Sequence[str]
) -> Table | None:
    """A table of the columns that hold anything; None if there are none."""
    kept = tuple(column for column in columns if any(cell.text != GAP for cell in column.cells))
    if not kept:
        return None
    rows = tuple(
        Row(name, role, tuple(column.cells[i] for column in kept))
        for i, (name, role) in enumerate(zip(names, roles, strict=True))
    )
    return Table(caption, lead, corner, kept, rows)


def _delta_name(j: int) -> str:
    """Delta with the number of the feature, counted from 1, as an index."""
    return "Δ" + str(j + 1).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def _in_percent(score: Score | None) -> Score | None:
    return score and Score(100 * score.mean, _times(100, score.se))


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value


def _at(values: Sequence[float | None], j: int) -> float | None:
    return values[j] if j < len(values) else None
