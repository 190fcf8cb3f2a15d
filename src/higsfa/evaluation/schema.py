"""The record of an experiment, ``metrics.json``, and the limits of all files of a run folder.

`Metrics` is the only description of metrics.json: ``higsfa train`` writes the file through it, and everybody reads it
through it. Its fields are explained in docs/run-folder.md. Run folders come from anywhere, so each value is checked; a
wrong one is a `ReportError` of one line that names file and place. Fields that are not described here are ignored: a
later version of higsfa may add some without a new format number.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo

from higsfa.io import read_regular

FORMAT = 1
MAX_METRICS = 32 * 2**20  # bytes of metrics.json
MAX_TEXT = 1000  # characters of a text that a report shows; longer ones are cut
MAX_NAMES = 100  # labels, methods, layers, settings and Delta values
MAX_WARNINGS = 1000
MAX_NUMBERS = 10_000  # points of a curve
MAX_CLASSES = 1_000_000
MAX_GROUPED = 20  # labels whose groups are looked at
MAX_CONFUSED = 100  # classes of a confusion matrix; a label with more has none
LARGEST = 1e100  # no score, count or time is larger: figures could not show it
MAX_NPZ = 32 * 2**20  # bytes of examples.npz, and of the pictures in it
MAX_ARRAY = 64 * 2**20  # bytes of one array of examples.npz
MAX_PREDICTIONS = 128 * 2**20  # bytes of predictions.csv that a report reads; larger tables are not drawn
MAX_ROWS = 1_000_000  # rows of predictions.csv that a report reads

_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")


class ReportError(ValueError):
    """A file of a run folder is not as it should be.

    Examples
    --------
    >>> import tempfile
    >>> from higsfa.report import ReportError, write_report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     try:
    ...         write_report(folder)
    ...     except ReportError as error:
    ...         print(str(error).replace(folder, "RUN"))
    RUN holds no metrics.json; give the folder that `higsfa train --out` wrote
    """


def _shortened(text: str, info: ValidationInfo) -> str:
    if re.search("[\ud800-\udfff]", text):
        raise ValueError("a text of whole characters")
    most = (info.context or {}).get("max_text", len(text))
    return text if len(text) <= most else text[:most] + "…"


def _must(check: Callable[[Any], bool], expected: str) -> Any:
    """Refuse values that fail a check."""

    def checked(value: Any) -> Any:
        if not check(value):
            raise ValueError(expected)
        return value

    return AfterValidator(checked)


def _as_long_as(other: str) -> Any:
    """A list must be as long as another field."""

    def checked(values: Any, info: ValidationInfo) -> Any:
        if other in info.data and len(values) != len(info.data[other]):
            raise ValueError(f"a list as long as {other} ({len(info.data[other])})")
        return values

    return AfterValidator(checked)


def _at_most(n: int) -> Any:
    """The length of a list. Checks end at its first wrong entry: a large file could have millions of them."""
    return Field(max_length=n, fail_fast=True)


Text = Annotated[str, AfterValidator(_shortened)]
Whole = Annotated[int, Field(strict=True, ge=0, le=10**15)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]
Numbers = Annotated[tuple[Number, ...], _at_most(MAX_NUMBERS)]
Gappy = Annotated[tuple[Number | None, ...], _at_most(MAX_NUMBERS)]
Deltas = Annotated[tuple[Number | None, ...], _at_most(MAX_NAMES)]
ClassName = Annotated[Text, BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)]
Classes = Annotated[tuple[ClassName, ...], _at_most(MAX_CLASSES)]
Counts = Annotated[tuple[Whole, ...], _at_most(MAX_CONFUSED)]
Confusion = Annotated[
    tuple[Counts, ...],
    _at_most(MAX_CONFUSED),
    _must(lambda matrix: all(len(row) == len(matrix) for row in matrix), "a square matrix of counts"),
]
PixelRange = Annotated[tuple[Number, Number], _must(lambda pair: pair[0] < pair[1], "the values of black and white")]


class Record(BaseModel):
    """An object of the file. Null and an absent field mean the same: there is no such value."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def plain(self) -> dict[str, Any]:
        """The object as JSON has it, with the fields that were given."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Data(Record):
    name: Text
    n_train: Whole
    n_supervised: Whole | None = None
    n_test: Whole
    image_shape: Annotated[tuple[Whole, ...], _at_most(4)] | None = None
    pixel_range: PixelRange | None = None
    cropping: Literal["eyes", "centre"] | None = None
    copies: Whole | None = None
    networks: Whole | None = None


class Label(Record):
    name: Text
    kind: Literal["numeric", "categorical"]
    unit: Text | None = None
    classes: Classes | None = None

    @property
    def is_numeric(self) -> bool:
        return self.kind == "numeric"


class Score(Record):
    """A mean over folds, its standard error (None for one fold), and the value of each fold."""

    mean: Number
    se: Number | None = None
    values: Gappy | None = None


class Rate(Score):
    mean: Fraction


class Cumulative(Record):
    thresholds: Numbers
    scores: Annotated[tuple[Fraction, ...], _at_most(MAX_NUMBERS), _as_long_as("thresholds")]


class ByLabel(Record):
    label: Numbers
    mae: Annotated[Gappy, _as_long_as("label")]
    count: Annotated[tuple[Whole, ...], _at_most(MAX_NUMBERS), _as_long_as("label")]


class ByGroup(Record):
    """Scores of groups of test samples: mean absolute errors, or rates; with standard errors and counts."""

    group: Annotated[tuple[ClassName, ...], _at_most(MAX_NAMES)]
    score: Annotated[Gappy, _as_long_as("group")]
    se: Annotated[Gappy, _as_long_as("group")]
    count: Annotated[tuple[Whole, ...], _at_most(MAX_NAMES), _as_long_as("group")]


class Calibration(Record):
    """Bins of the probability of the estimated class: its mean, the share that is right, and the samples."""

    probability: Annotated[tuple[Fraction, ...], _at_most(MAX_NAMES)]
    rate: Annotated[tuple[Fraction, ...], _at_most(MAX_NAMES), _as_long_as("probability")]
    count: Annotated[tuple[Whole, ...], _at_most(MAX_NAMES), _as_long_as("probability")]
    error: Fraction


class LabelScores(Record):
    mae: Score | None = None
    rmse: Score | None = None
    rate: Rate | None = None
    cumulative: Cumulative | None = None
    by_label: ByLabel | None = None
    confusion: Confusion | None = None
    by_group: Annotated[dict[Text, ByGroup], Field(max_length=MAX_GROUPED)] | None = None
    calibration: Calibration | None = None


class Seconds(Record):
    fit: Number | None = None
    transform: Number | None = None


class Delta(Record):
    label: Text | None = None
    train: Deltas | None = None
    test: Deltas | None = None


class ReconstructionError(Record):
    global_: Number | None = Field(default=None, alias="global")
    top_down: Number | None = None


class Method(Record):
    name: Text
    role: Literal["main", "comparison", "chance"]
    n_features: Whole | None = None
    seconds: Seconds | None = None
    labels: Annotated[dict[Text, LabelScores | None], Field(max_length=MAX_NAMES)] | None = None
    delta: Delta | None = None
    reconstruction_error: ReconstructionError | None = None

    def scores(self, label: Label) -> LabelScores:
        return (self.labels or {}).get(label.name) or LabelScores()


class Layer(Record):
    layer: Whole
    nodes: Whole | None = None
    expanded: Whole | None = None
    n_components: Whole | None = None
    mean_n_slow: Number | None = None
    mean_delta_1: Number | None = None
    min_delta_1: Number | None = None


class Setting(Record):
    """Scores at one value of the Delta threshold."""

    delta_threshold: Number
    mae: Annotated[dict[Text, Number | None], Field(max_length=MAX_NAMES)] | None = None
    rate: Annotated[dict[Text, Fraction | None], Field(max_length=MAX_NAMES)] | None = None
    delta_test: Deltas | None = None


Format = Annotated[
    Whole, _must(lambda found: found == FORMAT, f"{FORMAT}, the only format that this version of higsfa reads")
]
Methods = Annotated[
    tuple[Method, ...],
    _at_most(MAX_NAMES),
    _must(lambda found: [m.role for m in found].count("main") == 1, "a list with exactly one method of role main"),
]


class Metrics(Record):
    format: Format
    title: Text
    created: Text | None = None
    higsfa: Text | None = None
    data: Data
    labels: Annotated[tuple[Label, ...], _at_most(MAX_NAMES)]
    n_folds: Whole | None = None
    methods: Methods
    layers: Annotated[tuple[Layer, ...], _at_most(MAX_NAMES)] | None = None
    sensitivity: Annotated[tuple[Setting, ...], _at_most(MAX_NAMES)] | None = None
    warnings: Annotated[tuple[Text, ...], _at_most(MAX_WARNINGS)] | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Metrics:
        """The record of an experiment, whose numbers need not be finite, and classes may be too many to name."""
        known = plain(content)
        for label in known["labels"]:
            if len(label["classes"] or ()) > MAX_CLASSES:
                label["classes"] = None
        return checked(cls, known, "metrics.json")

    @property
    def main(self) -> Method:
        return next(method for method in self.methods if method.role == "main")

    def to_json(self) -> bytes:
        """The file; without confusion matrices and names of classes if it is too large for its readers."""
        content = self.plain()
        found = to_json(content)
        if len(found) > MAX_METRICS:
            for label in content["labels"]:
                label["classes"] = None
            for scores in (scores for method in content["methods"] for scores in (method.get("labels") or {}).values()):
                scores["confusion"] = None
            found = to_json(content)
        return found


def to_json(content: Any) -> bytes:
    """JSON that every reader understands, with lists of numbers on one line."""
    text = json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False)
    lists = re.sub(r"\[\n([-+.\d\seEnul,]*)\]", lambda found: "[" + " ".join(found[1].split()) + "]", text)
    return (lists + "\n").encode("utf-8")


def plain(value: Any) -> Any:
    """Numbers that are not finite become null; lone surrogates, which names of files may hold, become "?"."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return None if isinstance(value, float) and not isfinite(value) else value


def guarded(text: str) -> str:
    """A text for a table, quoted if a spreadsheet would take it for a formula, as one that begins with =.

    Examples
    --------
    >>> [guarded(text) for text in ("=1+1", "-1.5", "@home", "home", "'tis")]
    ["'=1+1", '-1.5', "'@home", 'home', "''tis"]
    """
    is_formula = text.startswith(("=", "+", "-", "@", "\t", "\r", "'")) and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text


def unguarded(text: str) -> str:
    return text.removeprefix("'")


M = TypeVar("M", bound=BaseModel)
_EXPECTED = {"dict_type": "an object", "model_type": "an object", "tuple_type": "a list"}
_EXPECTED["too_long"] = "of at most {max_length:,} entries"


def read_metrics(path: Path, *, max_text: int | None = None) -> Metrics:
    """The record in a metrics.json; texts are cut to `max_text` characters if that is given."""
    context = None if max_text is None else {"max_text": max_text}
    return checked(Metrics, read_json(path, MAX_METRICS), path.name, context)


def checked(model: type[M], value: Any, file: str, context: Any = None) -> M:
    """A value of a JSON file as a record, or a `ReportError` that names the first wrong place."""
    try:
        return model.model_validate(value, context=context)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{' '.join(key.split())[:80]}" for key in first["loc"])
    place = place.removeprefix(".") or "the file"
    if first["type"] == "missing":
        raise ReportError(f"{file}: {place} is missing")
    expected = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    if first["type"] in _EXPECTED:
        expected = _EXPECTED[first["type"]].format(**first.get("ctx", {}))
    kinds: dict[type, str] = {dict: "an object", list: "a list", type(None): "nothing"}
    found = kinds.get(type(first["input"]), repr(first["input"])[:80])
    raise ReportError(f"{file}: {place} must be {expected}, found {found}")


def read_text(path: str | os.PathLike[str], most: int) -> str:
    """The text in a regular file of at most so many bytes."""
    try:
        return read_regular(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ReportError(f"{Path(path).name} is not UTF-8 text") from error
    except ValueError as error:
        raise ReportError(str(error)) from error


def read_json(path: str | os.PathLike[str], most: int) -> Any:
    """The value in a JSON file of at most so many bytes, without NaN and infinity."""
    name = Path(path).name

    def constant(text: str) -> NoReturn:
        raise ReportError(f"{name} holds {text}, which is not JSON; write null instead")

    def real(digits: str) -> float:
        return number if isfinite(number := float(digits)) else constant(digits[:20])

    text = read_text(path, most)
    try:
        return json.loads(text, parse_constant=constant, parse_float=real)
    except ReportError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReportError(f"{name} is not JSON: {str(error)[:200]}") from error
