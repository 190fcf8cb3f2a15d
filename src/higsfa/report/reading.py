"""From the files of a run folder to records; a value of the wrong type is refused by file and key."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from higsfa.report.arrays import read_examples
from higsfa.report.checks import ReportError, Value, gappy_numbers, numbers, read_json, read_text
from higsfa.report.limits import MAX_CLASSES, MAX_CONFUSED, MAX_METRICS
from higsfa.report.predictions import TooLarge, read_predictions
from higsfa.report.records import (
    ByLabel,
    Cumulative,
    Data,
    Delta,
    Label,
    LabelScores,
    Layer,
    Method,
    Metrics,
    RunFolder,
    Score,
    Setting,
)

FORMAT = 1
MAX_TEXT = 2**20
MAX_NAMES = 100


def read_run(folder: Path) -> RunFolder:
    """All that a report shows of a run folder; only ``metrics.json`` must be there."""
    path = folder / "metrics.json"
    if not path.is_file():
        raise ReportError(f"{folder} holds no metrics.json; give the folder that `higsfa train --out` wrote")
    metrics = read_metrics(read_json(path, MAX_METRICS))
    predictions = None
    try:
        predictions = read_predictions(folder / "predictions.csv", metrics.labels)
    except TooLarge as error:
        metrics = replace(metrics, warnings=(*metrics.warnings, f"{error}: figures of single samples are left out"))
    n_rows = predictions.n_rows if predictions else 0
    config = folder / "config.toml"
    return RunFolder(
        name=folder.resolve().name,
        metrics=metrics,
        predictions=predictions,
        examples=read_examples(folder / "examples.npz", n_rows),
        environment=_environment(folder / "environment.json"),
        config=read_text(config, MAX_TEXT) if config.is_file() else None,
    )


def read_metrics(root: Value) -> Metrics:
    found = root.get("format")
    if type(found.value) is not int or found.value != FORMAT:
        found.refuse(f"{FORMAT}, the only format that this version of higsfa reads")
    methods = tuple(_method(item) for item in root.get("methods").items(MAX_NAMES))
    if sum(method.role == "main" for method in methods) != 1:
        root.get("methods").refuse("a list with exactly one method of role main")
    return Metrics(
        title=root.get("title").text(),
        created=root.get("created").maybe(Value.text),
        version=root.get("higsfa").maybe(Value.text),
        data=_data(root.get("data")),
        labels=tuple(_label(item) for item in root.get("labels").items(MAX_NAMES)),
        n_folds=root.get("n_folds").maybe(Value.whole) or 1,
        methods=methods,
        layers=root.get("layers").maybe(_layers) or (),
        sensitivity=root.get("sensitivity").maybe(_settings) or (),
        warnings=root.get("warnings").maybe(_texts) or (),
    )


def _texts(value: Value) -> tuple[str, ...]:
    return tuple(item.text() for item in value.items(MAX_NAMES * 10))


def _data(value: Value) -> Data:
    return Data(
        name=value.get("name").text(),
        n_train=value.get("n_train").whole(),
        n_supervised=value.get("n_supervised").maybe(Value.whole),
        n_test=value.get("n_test").whole(),
        image_shape=value.get("image_shape").maybe(lambda v: tuple(item.whole() for item in v.items(4))),
        copies=value.get("copies").maybe(Value.whole),
        pixel_range=value.get("pixel_range").maybe(_pixel_range),
        cropping=value.get("cropping").maybe(lambda v: v.one_of("eyes", "centre")),
    )


def _pixel_range(value: Value) -> tuple[float, float]:
    found = numbers(value, 2)
    if len(found) != 2 or found[0] >= found[1]:
        value.refuse("the values of black and white")
    return found[0], found[1]


def _label(value: Value) -> Label:
    return Label(
        name=value.get("name").text(),
        kind=value.get("kind").one_of("numeric", "categorical"),
        unit=value.get("unit").maybe(Value.text),
        classes=value.get("classes").maybe(_classes) or (),
    )


def _classes(value: Value) -> tuple[str, ...]:
    """Names of classes; numbers and truth values count as the text that shows them."""
    items = value.items(MAX_CLASSES)
    return tuple(str(v.value) if isinstance(v.value, int | float) else v.text() for v in items)


def _method(value: Value) -> Method:
    seconds, errors = value.get("seconds"), value.get("reconstruction_error")
    return Method(
        name=value.get("name").text(),
        role=value.get("role").one_of("main", "comparison", "chance"),
        n_features=value.get("n_features").maybe(Value.whole),
        fit_seconds=seconds.maybe(lambda v: v.get("fit").maybe(Value.number)),
        transform_seconds=seconds.maybe(lambda v: v.get("transform").maybe(Value.number)),
        labels=value.get("labels").maybe(_all_scores) or {},
        delta=value.get("delta").maybe(_delta),
        error_global=errors.maybe(lambda v: v.get("global").maybe(Value.number)),
        error_top_down=errors.maybe(lambda v: v.get("top_down").maybe(Value.number)),
    )


def _all_scores(value: Value) -> dict[str, LabelScores]:
    return {name: scores for name, v in value.members(MAX_NAMES).items() if (scores := v.maybe(_label_scores))}


def _label_scores(value: Value) -> LabelScores:
    return LabelScores(
        mae=value.get("mae").maybe(_score),
        rmse=value.get("rmse").maybe(_score),
        rate=value.get("rate").maybe(_rate),
        cumulative=value.get("cumulative").maybe(_cumulative),
        by_label=value.get("by_label").maybe(_by_label),
        confusion=value.get("confusion").maybe(_confusion),
    )


def _score(value: Value) -> Score:
    return Score(value.get("mean").number(), value.get("se").maybe(Value.number))


def _rate(value: Value) -> Score:
    return Score(value.get("mean").fraction(), value.get("se").maybe(Value.number))


def _cumulative(value: Value) -> Cumulative:
    curve = Cumulative(
        thresholds=numbers(value.get("thresholds")),
        scores=tuple(item.fraction() for item in value.get("scores").items(10_000)),
    )
    if len(curve.scores) != len(curve.thresholds):
        value.get("scores").refuse(f"a list as long as thresholds ({len(curve.thresholds)})")
    return curve


def _by_label(value: Value) -> ByLabel:
    curve = ByLabel(numbers(value.get("label")), gappy_numbers(value.get("mae")), numbers(value.get("count")))
    for name in ("mae", "count"):
        if len(getattr(curve, name)) != len(curve.label):
            value.get(name).refuse(f"a list as long as label ({len(curve.label)})")
    return curve


def _confusion(value: Value) -> tuple[tuple[float, ...], ...]:
    rows = tuple(numbers(row, MAX_CONFUSED) for row in value.items(MAX_CONFUSED))
    if any(len(row) != len(rows) for row in rows) or any(count < 0 for row in rows for count in row):
        value.refuse("a square matrix of counts")
    return rows


def _delta(value: Value) -> Delta:
    return Delta(
        label=value.get("label").maybe(Value.text),
        train=value.get("train").maybe(lambda v: gappy_numbers(v, MAX_NAMES)),
        test=value.get("test").maybe(lambda v: gappy_numbers(v, MAX_NAMES)),
    )


def _layers(value: Value) -> tuple[Layer, ...]:
    return tuple(
        Layer(
            layer=item.get("layer").whole(),
            nodes=item.get("nodes").maybe(Value.whole),
            expanded=item.get("expanded").maybe(Value.whole),
            n_components=item.get("n_components").maybe(Value.whole),
            mean_n_slow=item.get("mean_n_slow").maybe(Value.number),
            mean_delta_1=item.get("mean_delta_1").maybe(Value.number),
            min_delta_1=item.get("min_delta_1").maybe(Value.number),
        )
        for item in value.items(MAX_NAMES)
    )


def _settings(value: Value) -> tuple[Setting, ...]:
    return tuple(
        Setting(
            delta_threshold=item.get("delta_threshold").number(),
            mae=item.get("mae").maybe(lambda v: _by_name(v, Value.number)) or {},
            rate=item.get("rate").maybe(lambda v: _by_name(v, Value.fraction)) or {},
            delta_test=item.get("delta_test").maybe(lambda v: gappy_numbers(v, MAX_NAMES)) or (),
        )
        for item in value.items(MAX_NAMES)
    )


def _by_name(value: Value, read: Callable[[Value], float]) -> dict[str, float]:
    return {name: number for name, v in value.members(MAX_NAMES).items() if (number := v.maybe(read)) is not None}


def _environment(path: Path) -> tuple[tuple[str, str], ...]:
    """Names and values, one line for each; groups within groups are written out as JSON."""
    if not path.is_file():
        return ()
    lines = []
    for name, value in read_json(path, MAX_TEXT).members(1000).items():
        inner = value.members(1000) if isinstance(value.value, dict) else {"": value}
        lines += [(f"{name} {key}".strip(), _shown(item)) for key, item in inner.items()]
    return tuple(lines)


def _shown(value: Value) -> str:
    return value.text(10_000) if isinstance(value.value, str) else json.dumps(value.value)
