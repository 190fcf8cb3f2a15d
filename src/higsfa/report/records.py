"""What a report knows about a run: frozen records, None where the run folder has nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

Gappy = tuple[float | None, ...]


@dataclass(frozen=True)
class Data:
    name: str
    n_train: int
    n_supervised: int | None
    n_test: int
    image_shape: tuple[int, ...] | None
    copies: int | None
    pixel_range: tuple[float, float] | None
    cropping: str | None


@dataclass(frozen=True)
class Label:
    name: str
    kind: str
    unit: str | None
    classes: tuple[str, ...]

    @property
    def is_numeric(self) -> bool:
        return self.kind == "numeric"


@dataclass(frozen=True)
class Score:
    """A mean over folds and its standard error, which one fold does not have."""

    mean: float
    se: float | None = None


@dataclass(frozen=True)
class Cumulative:
    thresholds: tuple[float, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class ByLabel:
    label: tuple[float, ...]
    mae: Gappy
    count: tuple[float, ...]


@dataclass(frozen=True)
class LabelScores:
    """The scores of one method for one label."""

    mae: Score | None = None
    rmse: Score | None = None
    rate: Score | None = None
    cumulative: Cumulative | None = None
    by_label: ByLabel | None = None
    confusion: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True)
class Delta:
    label: str | None
    train: Gappy | None
    test: Gappy | None


@dataclass(frozen=True)
class Method:
    name: str
    role: str
    n_features: int | None
    fit_seconds: float | None
    transform_seconds: float | None
    labels: dict[str, LabelScores]
    delta: Delta | None
    error_global: float | None
    error_top_down: float | None

    def scores(self, label: Label) -> LabelScores:
        return self.labels.get(label.name, LabelScores())


@dataclass(frozen=True)
class Layer:
    layer: int
    nodes: int | None
    expanded: int | None
    n_components: int | None
    mean_n_slow: float | None
    mean_delta_1: float | None
    min_delta_1: float | None


@dataclass(frozen=True)
class Setting:
    """Scores at one value of the delta threshold."""

    delta_threshold: float
    mae: dict[str, float]
    rate: dict[str, float]
    delta_test: Gappy


@dataclass(frozen=True)
class Metrics:
    title: str
    created: str | None
    version: str | None
    data: Data
    labels: tuple[Label, ...]
    n_folds: int
    methods: tuple[Method, ...]
    layers: tuple[Layer, ...]
    sensitivity: tuple[Setting, ...]
    warnings: tuple[str, ...]

    @property
    def main(self) -> Method:
        return next(method for method in self.methods if method.role == "main")

    def of_role(self, role: str) -> tuple[Method, ...]:
        return tuple(method for method in self.methods if method.role == role)


@dataclass(frozen=True)
class Examples:
    images: NDArray[Any] | None = None
    reconstructions: NDArray[Any] | None = None
    reconstruction_names: tuple[str, ...] = ()
    features: NDArray[Any] | None = None
    feature_rows: NDArray[Any] | None = None


@dataclass(frozen=True)
class Predictions:
    """True labels and estimates of the test samples; numbers for numeric labels, text for categorical ones."""

    n_rows: int
    truth: dict[str, NDArray[Any]]
    estimate: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class RunFolder:
    name: str
    metrics: Metrics
    predictions: Predictions | None
    examples: Examples
    environment: tuple[tuple[str, str], ...]
    config: str | None
