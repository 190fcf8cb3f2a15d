"""What a report says: how numbers are written, the summary at the top, and the paper's tables for a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from math import floor, log10
from typing import Any, NamedTuple

from higsfa.evaluation.schema import Label, Method, Metrics, Score

N_DELTAS, N_LABELS, N_HEADLINES = 10, 3, 4
GAP = "–"
Best = Callable[[Iterable[float]], float]


def decimals_for(values: Iterable[float], errors: Iterable[float] = (), least: int = 0) -> int:
    """Decimals, at most 4, that show three digits of the smallest value and one of the smallest error."""
    places = [least]
    for numbers, digits in ((values, 3), (errors, 1)):
        sizes = [abs(number) for number in numbers if number]
        places += [digits - 1 - floor(log10(min(sizes)))] if sizes else []
    return min(max(places), 4)


def fixed(value: float, decimals: int) -> str:
    """A number with a given number of decimals; huge ones in scientific notation."""
    text = f"{value:,.{decimals}f}" if abs(value) < 1e9 else f"{value:.{decimals}e}"
    return text.replace("-", "−", 1) if text.startswith("-") else text


def short(value: float) -> str:
    """A number on its own, with three significant digits."""
    text = fixed(value, decimals_for([value]))
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def percent(fraction: float) -> str:
    """A fraction as a percentage, with a no-break space."""
    return f"{fixed(100 * fraction, 1)}\N{NO-BREAK SPACE}%"


def duration(seconds: float, decimals: int = 1) -> str:
    """A time in seconds, minutes or hours."""
    size, unit = next((pair for pair in ((3600, "h"), (60, "min")) if seconds >= 2 * pair[0]), (1, "s"))
    return f"{fixed(seconds / size, decimals)} {unit}"


def shortened(text: str, longest: int = 40) -> str:
    """Text without control characters, cut to a maximum length."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"


class Headline(NamedTuple):
    value: str
    name: str
    note: str


def headlines(metrics: Metrics) -> list[Headline]:
    """The main method's scores for the first labels, then the slowest feature and the reconstruction error."""
    found = []
    for label, value, _, chance in _results(metrics):
        what = "mean absolute error" if label.is_numeric else "classified correctly"
        found.append(Headline(value, f"{label.name}, {what}", f"chance {chance[1]}" if chance else ""))
    delta, errors = metrics.main.delta, metrics.main.reconstruction_error
    if delta and delta.test and delta.test[0] is not None:
        found.append(Headline(fixed(delta.test[0], 2), "Delta of the first feature, test", "0 constant, 2 noise"))
    if errors and errors.global_ is not None:
        found.append(Headline(short(errors.global_), "reconstruction error", "0 perfect, 1 mean image"))
    return found[:N_HEADLINES]


def outcomes(metrics: Metrics) -> list[str]:
    """A sentence for each of the first labels: the main method, the best other method and chance."""
    found = []
    for label, value, rival, chance in _results(metrics):
        if label.is_numeric:
            text = f"It estimates {label.name} with a mean absolute error of {value}"
        else:
            text = f"It finds the right {label.name} for {value} of the test samples"
        text += f"; {rival[0]}, the best of the others, has {rival[1]}" if rival else ""
        found.append(text + (f"; a constant answer has {chance[1]}." if chance else "."))
    return found


def setup(metrics: Metrics) -> str:
    """What was trained, on what."""
    data, n_folds, networks = metrics.data, metrics.n_folds or 1, metrics.data.networks or 1
    things = f"pictures of {' × '.join(map(str, data.image_shape))} pixels" if data.image_shape else "samples"
    copies = f", each in {data.copies} distorted copies," if data.copies and data.copies > 1 else ""
    shared = f" Its estimates are means over {data.networks} networks, which share the copies." if networks > 1 else ""
    folds = f" The experiment was repeated on {n_folds} splits of the data." if n_folds > 1 else ""
    name, n_train, n_test = metrics.main.name, f"{data.n_train:,}", f"{data.n_test:,}"
    return f"{name} was trained on {n_train} {things}{copies} and tested on {n_test} others.{shared}{folds}"


def _results(metrics: Metrics) -> list[tuple[Label, str, tuple[str, str] | None, tuple[str, str] | None]]:
    """The first labels with the main method's score, and name and score of the best rival and of chance."""
    found = []
    for label in metrics.labels:
        if main := _best(metrics, "main", label):
            value = f"{main[1]} {label.unit}" if label.is_numeric and label.unit else main[1]
            found.append((label, value, _best(metrics, "comparison", label), _best(metrics, "chance", label)))
    return found[:N_LABELS]


def _best(metrics: Metrics, role: str, label: Label) -> tuple[str, str] | None:
    """The best method of a role, and its score."""
    scores = {method.name: method.scores(label) for method in metrics.methods if method.role == role}
    numeric = label.is_numeric
    means = {name: s.mean for name, own in scores.items() if (s := own.mae if numeric else own.rate)}
    name = (min if numeric else max)(means, key=means.__getitem__, default=None)
    return None if name is None else (name, short(means[name]) if numeric else percent(means[name]))


class Cell(NamedTuple):
    text: str
    is_best: bool = False


class Column(NamedTuple):
    title: str
    note: str
    cells: tuple[Cell, ...]


class Row(NamedTuple):
    name: str
    role: str
    cells: tuple[Cell, ...]


class Table(NamedTuple):
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
            _score_column(f"{label.name} rate", "%", [s.rate for s in scores], best=max, factor=100, least=1),
        ]
    lead = (
        "How far estimates are from the truth on test samples. Errors (MAE: mean absolute, RMSE: root mean squared) "
        "are better when lower, rates of correct classes when higher. Chance is the best a constant answer can do."
    )
    if (metrics.n_folds or 1) > 1:
        lead += f" Numbers are means over {metrics.n_folds} folds, ± the standard error of the mean."
    return _table("Accuracy on test samples", lead, columns, metrics.methods)


def cumulative_table(metrics: Metrics, label: Label) -> Table | None:
    """The share of estimates within each allowed error."""
    pairs = [(method, curve) for method in metrics.methods if (curve := method.scores(label).cumulative)]
    curves = [dict(zip(curve.thresholds, curve.scores, strict=True)) for _, curve in pairs]
    columns = []
    for threshold in sorted(set().union(*curves)):
        scores = [curve.get(threshold) for curve in curves]
        columns.append(_column(f"≤\N{NO-BREAK SPACE}{threshold:g}", "", scores, best=max, factor=100, decimals=1))
    unit = f" {label.unit}" if label.unit else ""
    lead = f"Percentage of test samples whose {label.name} is off by at most so many{unit}. Higher is better."
    return _table(f"Cumulative scores, {label.name}, in per cent", lead, columns, [method for method, _ in pairs])


def group_table(metrics: Metrics) -> Table | None:
    """The main method's scores for each group of test samples."""
    found = [(label, own) for label in metrics.labels if (own := metrics.main.scores(label).by_group)]
    rows = dict.fromkeys((name, group) for _, own in found for name, part in own.items() for group in part.group)
    counts, columns = dict.fromkeys(rows, 0), []
    for label, own in found:
        values, errors = dict.fromkeys(rows), dict.fromkeys(rows)
        for name, part in own.items():
            for group, score, error, count in zip(part.group, part.score, part.se, part.count, strict=True):
                values[name, group], errors[name, group] = score, error
                counts[name, group] = max(counts[name, group], count)
        numbers = list(values.values()), list(errors.values())
        if label.is_numeric:
            columns.append(_column(f"{label.name} MAE", label.unit or "lower is better", *numbers))
        else:
            columns.append(_column(f"{label.name} rate", "%", *numbers, factor=100, decimals=1))
    columns.insert(0, _column("samples", "test", list(counts.values()), decimals=0))
    lead = (
        f"For whom {metrics.main.name} works, and for whom less well, ± the standard error: people must be able to see "
        "it, and a mean over all samples hides small groups. Groups are what somebody wrote down about the samples. "
        "Where they show people, estimates are statistical guesses about pictures, not facts about people."
    )
    return _table("Errors by group", lead, columns, [f"{name}: {group}" for name, group in rows], "group")


def calibration_table(metrics: Metrics) -> Table | None:
    """How far probabilities are from the share of estimates that are right."""
    found = {label.name: own for label in metrics.labels if (own := metrics.main.scores(label).calibration)}
    means = [_mean(own.probability, own.count) for own in found.values()]
    rates = [_mean(own.rate, own.count) for own in found.values()]
    errors = [own.error for own in found.values()]
    columns = [
        _column("mean probability", "%", means, factor=100, decimals=1),
        _column("correct", "%", rates, factor=100, decimals=1),
        _column("calibration error", "%, lower is better", errors, factor=100, decimals=1),
    ]
    lead = (
        "Each estimate comes with a probability. Of estimates with 80\N{NO-BREAK SPACE}%, about 80\N{NO-BREAK SPACE}% "
        "should be right. The calibration error is the mean distance between the two; a mean probability above the "
        "share of correct ones means that the method is too sure of itself."
    )
    return _table("Calibration of probabilities", lead, columns, found, "label")


def _mean(values: Sequence[float], counts: Sequence[int]) -> float | None:
    total = sum(counts)
    return sum(value * count for value, count in zip(values, counts, strict=True)) / total if total else None


def delta_table(metrics: Metrics, part: str) -> Table | None:
    """Delta values of the first features on ``"train"`` or ``"test"`` samples."""
    methods = [m for m in metrics.methods if m.delta and getattr(m.delta, part)]
    values = zip_longest(*(getattr(method.delta, part)[:N_DELTAS] for method in methods))
    columns = [_column(_delta_name(j), "", column, best=min, decimals=2) for j, column in enumerate(values)]
    order = next((f" by {m.delta.label}" for m in methods if m.delta and m.delta.label), "")
    samples = {"train": "training", "test": "test"}[part]
    lead = (
        f"How much each feature changes from one sample to the next, with the {samples} samples in order{order}. "
        "Delta: 0 is constant, 2 is noise; lower is slower."
    )
    return _table(f"Delta values of the first features, {samples} samples", lead, columns, methods)


def reconstruction_table(metrics: Metrics) -> Table | None:
    methods, errors = _known(metrics, "reconstruction_error")
    columns = [
        _column("features", "", [method.n_features for method in methods], decimals=0),
        _column("global", "linear map", [error.global_ for error in errors], best=min, decimals=3),
        _column("top-down", "node by node", [error.top_down for error in errors], best=min, decimals=3),
    ]
    lead = (
        "How badly test samples are rebuilt from their features: 0 is perfect, 1 no better than the mean image. Global "
        "uses the best linear map from features to pixels, top-down inverts the network node by node."
    )
    return _table("Normalised reconstruction error", lead, columns, methods)


def sensitivity_table(metrics: Metrics) -> Table | None:
    settings = metrics.sensitivity or ()
    columns = []
    for label in metrics.labels:
        errors = [(s.mae or {}).get(label.name) for s in settings]
        rates = [(s.rate or {}).get(label.name) for s in settings]
        columns.append(_column(f"{label.name} MAE", label.unit or "", errors, best=min))
        columns.append(_column(f"{label.name} rate", "%", rates, best=max, factor=100, decimals=1))
    deltas = zip_longest(*(setting.delta_test or () for setting in settings))
    columns += [_column(_delta_name(j), "test", column, best=min, decimals=2) for j, column in enumerate(deltas)][:3]
    lead = "The same network with other thresholds of slowness. If rows hardly differ, it needs no careful tuning."
    rows = [f"{setting.delta_threshold:g}" for setting in settings]
    return _table("Sensitivity to the delta threshold", lead, columns, rows, "threshold")


def layer_table(metrics: Metrics) -> Table | None:
    layers = metrics.layers or ()
    columns = [
        _column("nodes", "", [layer.nodes for layer in layers], decimals=0),
        _column("expanded", "inputs per node", [layer.expanded for layer in layers], decimals=0),
        _column("features", "per node", [layer.n_components for layer in layers], decimals=0),
        _column("slow", "mean per node", [layer.mean_n_slow for layer in layers], decimals=1),
        _column(f"mean {_delta_name(0)}", "over nodes", [layer.mean_delta_1 for layer in layers], decimals=2),
        _column(f"lowest {_delta_name(0)}", "over nodes", [layer.min_delta_1 for layer in layers], decimals=2),
    ]
    lead = (
        "The network from the pixels (layer 1) to the top. Slow features are those kept for slowness; the rest of each "
        "node's features serve reconstruction. Delta should fall from layer to layer, as nodes see more of the input."
    )
    return _table("Layers of the network", lead, columns, [str(layer.layer) for layer in layers], "layer")


def cost_table(metrics: Metrics) -> Table | None:
    methods, times = _known(metrics, "seconds")
    columns = [
        _column("features", "", [method.n_features for method in methods], decimals=0),
        _column("training", "", [time.fit for time in times], best=min, decimals=1, write=duration),
        _column("extraction", "", [time.transform for time in times], best=min, decimals=1, write=duration),
    ]
    lead = "How long it took to train each method and to extract features, on one machine. Shorter is better."
    return _table("Training and extraction", lead, columns, methods)


def _known(metrics: Metrics, part: str) -> tuple[list[Method], list[Any]]:
    """The methods that have a non-empty record of this name, and the records."""
    methods = [m for m in metrics.methods if any(value is not None for _, value in getattr(m, part) or ())]
    return methods, [getattr(method, part) for method in methods]


def _score_column(title: str, note: str, scores: Sequence[Score | None], **options: Any) -> Column:
    pairs = [(score.mean, score.se) if score else (None, None) for score in scores]
    return _column(title, note, [mean for mean, _ in pairs], [error for _, error in pairs], **options)


def _column(
    title: str,
    note: str,
    values: Sequence[float | None],
    errors: Sequence[float | None] = (),
    *,
    best: Best | None = None,
    decimals: int | None = None,
    least: int = 0,
    factor: float = 1,
    write: Callable[[float, int], str] = fixed,
) -> Column:
    """A column of numbers with their errors; the best is marked if the digits shown tell the values apart."""
    numbers = [None if value is None else factor * value for value in values]
    spreads = [None if error is None else factor * error for error in errors]
    known = [number for number in numbers if number is not None]
    if decimals is None:
        decimals = decimals_for(known, [spread for spread in spreads if spread is not None], least)
    different = {round(number, decimals) for number in known}
    winner = best(different) if best and len(different) > 1 else None
    cells = []
    for number, spread in zip_longest(numbers, spreads):
        if number is None:
            cells.append(Cell(GAP))
        else:
            text = write(number, decimals) + ("" if spread is None else f" ± {fixed(spread, decimals)}")
            cells.append(Cell(text, round(number, decimals) == winner))
    return Column(title, note, tuple(cells))


def _table(
    caption: str, lead: str, columns: Sequence[Column], rows: Iterable[Method | str], corner: str = "method"
) -> Table | None:
    """A table of the non-empty columns, or None if all are empty; rows are methods or plain names."""
    kept = tuple(column for column in columns if any(cell.text != GAP for cell in column.cells))
    if not kept:
        return None
    names = [(row, "") if isinstance(row, str) else (row.name, row.role) for row in rows]
    cells = zip(*(column.cells for column in kept), strict=True)
    return Table(caption, lead, corner, kept, tuple(Row(*name, own) for name, own in zip(names, cells, strict=True)))


def _delta_name(j: int) -> str:
    return "Δ" + "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(j + 1))
