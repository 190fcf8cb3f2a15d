"""The top of a report: what came out, in a few sentences and three or four large numbers."""

from __future__ import annotations

from dataclasses import dataclass

from higsfa.report.numbers import fixed, percent, short
from higsfa.report.records import Label, Method, Metrics, Score

N_LABELS = 3
N_NUMBERS = 4


@dataclass(frozen=True)
class Number:
    value: str
    name: str
    note: str


def headline_numbers(metrics: Metrics) -> list[Number]:
    """The main method's scores for the first labels, then the slowest feature and the reconstruction error."""
    numbers = [number for label in metrics.labels if (number := _label_number(metrics, label))][:N_LABELS]
    main = metrics.main
    if main.delta and main.delta.test and main.delta.test[0] is not None:
        numbers.append(Number(fixed(main.delta.test[0], 2), "Delta of the first feature, test", "0 constant, 2 noise"))
    if main.error_global is not None:
        numbers.append(Number(short(main.error_global), "reconstruction error", "0 perfect, 1 mean image"))
    return numbers[:N_NUMBERS]


def outcomes(metrics: Metrics) -> list[str]:
    """How the main method does on the first labels, one sentence for each."""
    return [text for label in metrics.labels if (text := _outcome(metrics, label))][:N_LABELS]


def _label_number(metrics: Metrics, label: Label) -> Number | None:
    score = _score(metrics.main, label)
    if score is None:
        return None
    unit = f" {label.unit}" if label.unit and label.is_numeric else ""
    chance = _best(metrics, "chance", label)
    note = f"chance {_shown(chance[1], label)}" if chance else ""
    if label.is_numeric:
        return Number(short(score.mean) + unit, f"{label.name}, mean absolute error", note)
    return Number(percent(score.mean), f"{label.name}, classified correctly", note)


def setup(metrics: Metrics) -> str:
    """What was trained, on what."""
    data = metrics.data
    shape = f" of {' × '.join(map(str, data.image_shape))} pixels" if data.image_shape else ""
    thing = "pictures" if data.image_shape else "samples"
    copies = f", each in {data.copies} distorted copies," if data.copies and data.copies > 1 else ""
    folds = f" The experiment was repeated on {metrics.n_folds} splits of the data." if metrics.n_folds > 1 else ""
    return (
        f"{metrics.main.name} was trained on {data.n_train:,} {thing}{shape}{copies} and tested on {data.n_test:,} "
        f"others.{folds}"
    )


def _outcome(metrics: Metrics, label: Label) -> str | None:
    """The main method on one label, against the best other method and chance."""
    score = _score(metrics.main, label)
    if score is None:
        return None
    if label.is_numeric:
        unit = f" {label.unit}" if label.unit else ""
        text = f"It estimates {label.name} with a mean absolute error of {short(score.mean)}{unit}"
    else:
        text = f"It finds the right {label.name} for {percent(score.mean)} of the test samples"
    if rival := _best(metrics, "comparison", label):
        text += f"; {rival[0]}, the best of the others, has {_shown(rival[1], label)}"
    if chance := _best(metrics, "chance", label):
        text += f"; a constant answer has {_shown(chance[1], label)}"
    return text + "."


def _score(method: Method, label: Label) -> Score | None:
    scores = method.scores(label)
    return scores.mae if label.is_numeric else scores.rate


def _best(metrics: Metrics, role: str, label: Label) -> tuple[str, Score] | None:
    found = [(method.name, score) for method in metrics.of_role(role) if (score := _score(method, label))]
    if not found:
        return None
    choose = min if label.is_numeric else max
    return choose(found, key=lambda pair: pair[1].mean)


def _shown(score: Score, label: Label) -> str:
    return short(score.mean) if label.is_numeric else percent(score.mean)
