"""What `tune` chooses among: settings that a config leaves room for, candidates drawn from them, and their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from higsfa.core.graph.labels import missing
from higsfa.core.node.solve import AUTO
from higsfa.evaluation.schema import Number, Record, Text, Whole, checked, read_json
from higsfa.experiments.config import Config, FileData, GraphPart
from higsfa.experiments.data import Samples, read_data
from higsfa.experiments.interface import ExperimentError, in_one_line, named, with_values
from higsfa.experiments.methods import auto_parts, make_network
from higsfa.experiments.score import standard_error
from higsfa.experiments.split import Label

AS_GIVEN = "as given"
NAMES = ("front", "colour", "width", "n_components", "copies", "shrinkage", "graph")
EDGES_FROM = 16  # pixels of a side from which networks can begin with edges
WIDTHS, TOPS = (0.7, 1.4), (0.5, 1.5)  # factors of the features of lower layers, and of the top
COPIES = (1, 2, 4, 8)
SHRINKAGES = (0.0, 0.01, 0.1, AUTO)
STRONGER, N_HARMONICS = 3, 8  # how much more a label may count; of label graphs
MAX_LABELS = 8  # labels that are made to count more, one at a time
ETA = 3  # one candidate in so many goes on, with so many times as many samples
MAX_RUNGS, MAX_CANDIDATES = 3, 1000
FORMAT, MAX_STATE = 1, 8 * 2**20  # of tuning.json, and its bytes


class Option(NamedTuple):
    """A value of a setting, as people read it, and what it changes: keys as `with_values` takes them."""

    text: str
    changes: dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """Something to choose; what the config says comes first and changes nothing."""

    name: str
    options: tuple[Option, ...]


class Candidate(NamedTuple):
    settings: dict[str, str]  # those that differ from the config, by name, as people read them
    changes: dict[str, Any]

    @property
    def text(self) -> str:
        return ", ".join(f"{name} {text}" for name, text in self.settings.items()) or AS_GIVEN

    def applied(self, config: Config) -> Config:
        # What removes a table comes last, after changes within it.
        return with_values(config, dict(sorted(self.changes.items(), key=lambda item: item[1] is None)))


def check_options(config: Config, only: Sequence[str] | None, vary: Mapping[str, Sequence[Any]] | None) -> None:
    """What can be wrong with options of `settings_of` whatever the data."""
    for name in only or ():
        if name not in NAMES:
            raise ExperimentError(f"only (--only): there is no setting {name!r}; use some of {', '.join(NAMES)}")
    for key, values in (vary or {}).items():
        if isinstance(values, str | Mapping) or not isinstance(values, Sequence) or not values:
            raise ExperimentError(f"vary (--vary): {key} needs a list of values, such as [1.9, 1.96]; got {values!r}")
        for value in values:
            with_values(config, {key: value})


def settings_of(
    config: Config,
    data: Samples,
    labels: list[Label],
    *,
    only: Sequence[str] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
) -> list[Setting]:
    """The settings to choose, for training samples like these.

    `only` names those to choose among; `vary` adds any keys of the config with their values.
    """
    makers = {
        "front": _fronts(config, data),
        "colour": _colours(config, data),
        "width": _widths(config, data, labels),
        "n_components": _tops(config),
        "copies": _copies(config, len(data)),
        "shrinkage": _shrinkages(config, data, labels),
        "graph": _graphs(config, labels),
    }
    for name in only or ():
        if not makers[name]:
            room = [known for known, options in makers.items() if options]
            raise ExperimentError(f"only (--only): this config leaves no choice of {name!r}, but of {named(room)}")
    chosen = [name for name in makers if only is None or name in only]
    found = [Setting(name, tuple(makers[name])) for name in chosen if makers[name]]
    for key, values in (vary or {}).items():
        found.append(Setting(key, tuple(Option(json.dumps(value, default=str), {key: value}) for value in values)))
    if not found:
        raise ExperimentError("there is nothing to choose for this config; name keys and values to try (--vary)")
    return found


def draw(settings: list[Setting], n: int, seed: int) -> list[Candidate]:
    """The config as it is, then at most `n` - 1 others at random, each setting changed half the time.

    The first of a longer list are those of a shorter one.
    """
    sizes = [1 + len(setting.options) for setting in settings]
    rng = np.random.default_rng(seed)
    most = prod(sizes)
    if most <= 10_000:  # without repetitions, however few there are; settings as given are drawn as often as changed
        every = list(product(*map(range, sizes)))
        weights = np.array(
            [prod(1.0 if k == 0 else 1 / (size - 1) for k, size in zip(c, sizes, strict=True)) for c in every]
        )
        weights[0] = 0
        order: Any = rng.choice(most, most - 1, replace=False, p=weights / weights.sum()) if most > 1 else []
        picked = [every[i] for i in order]
    else:
        drawn = ([int(rng.integers(1, size)) if rng.random() < 0.5 else 0 for size in sizes] for _ in range(20 * n))
        picked = [choice for choice in dict.fromkeys(map(tuple, drawn)) if any(choice)]
    return [_candidate(settings, choice) for choice in [(0,) * len(sizes), *picked][:n]]


def _candidate(settings: list[Setting], choice: Sequence[int]) -> Candidate:
    picked = {s.name: s.options[k - 1] for s, k in zip(settings, choice, strict=True) if k}
    changes = {key: value for option in picked.values() for key, value in option.changes.items()}
    return Candidate({name: option.text for name, option in picked.items()}, changes)


def _is_designed(config: Config) -> bool:
    return config.network.layers is None and config.network.preset in ("pyramid", "photographs")


def _fronts(config: Config, data: Samples) -> list[Option]:
    if config.network.preset != "pyramid" or not _is_designed(config) or data.pixel_range is None:
        return []
    if min(data.source.shape[:2]) < EDGES_FROM:
        return []
    other = "edges" if config.network.front == "none" else "none"
    return [Option(other, {"network.front": other})]


def _colours(config: Config, data: Samples) -> list[Option]:
    """Grey instead of colour, or the other way round, if there are pictures in colour."""
    if not isinstance(config.data, FileData):
        return []
    if len(data.source.shape) == 3:
        return [Option("grey", {"data.colour": False})]
    if config.data.colour is False:
        looked = read_data(config.data.model_copy(update={"colour": "auto"}), n_jobs=config.network.n_jobs)
        if len(looked.source.shape) == 3:
            return [Option("colour", {"data.colour": True})]
    return []


def _layers(config: Config, data: Samples, labels: list[Label]) -> list[Any]:
    return list(make_network(config, labels, data.source.shape, n_samples=len(data)).layers)


def _widths(config: Config, data: Samples, labels: list[Label]) -> list[Option]:
    if len(_layers(config, data, labels)) < 2:
        return []
    values = [round(factor * config.network.width, 3) for factor in WIDTHS]
    return [Option(f"{value:g}", {"network.width": value}) for value in values if 0 < value <= 10]


def _tops(config: Config) -> list[Option]:
    if config.network.layers is not None or config.network.preset not in ("pyramid", "photographs", "single"):
        return []
    values = [max(2, round(factor * config.network.n_components)) for factor in TOPS]
    return [Option(str(n), {"network.n_components": n}) for n in values if n != config.network.n_components]


def _copies(config: Config, n_samples: int) -> list[Option]:
    """Only where there are copies: which distortions leave a label as it is, the user knows."""
    table = config.distortion
    if table is None:
        return []
    given = config.n_copies(n_samples)[0]
    numbers = [Option(str(n), {"distortion.copies": n}) for n in COPIES if n != given]
    return [Option("none", {"distortion": None}), *numbers]


def _shrinkages(config: Config, data: Samples, labels: list[Label]) -> list[Option]:
    given = {layer.shrinkage for layer in _layers(config, data, labels)}
    values = [value for value in SHRINKAGES if given != {value}]
    return [Option(f"{value}", {"network.layer_params.shrinkage": value}) for value in values]


def _graphs(config: Config, labels: list[Label]) -> list[Option]:
    """One label counts more, or numbers have label functions instead of groups in order, or the reverse."""
    parts = auto_parts(labels) if isinstance(config.graph.parts, str) else config.graph.parts
    names = list(dict.fromkeys(part.label for part in parts if part.label is not None))
    options = []
    for name in names[:MAX_LABELS] if len(names) > 1 else []:
        weights = [part.weight * (STRONGER if part.label == name else 1) for part in parts]
        stronger = [part.model_copy(update={"weight": w}) for part, w in zip(parts, weights, strict=True)]
        options.append(_parts(f"{name} x {STRONGER}", stronger))
    functions = {"kind": "label", "n_harmonics": N_HARMONICS}
    for kind, text, other in (("serial", "label functions", functions), ("label", "serial", {"kind": "serial"})):
        if any(part.kind == kind for part in parts):
            changed = [
                GraphPart(label=part.label, weight=part.weight, **other) if part.kind == kind else part
                for part in parts
            ]
            options.append(_parts(text, changed))
    return options


def _parts(text: str, parts: Sequence[GraphPart]) -> Option:
    return Option(text, {"graph.parts": [part.model_dump(mode="json", exclude_none=True) for part in parts]})


class Done(Record):
    """A candidate trained on the samples of a rung; without scores if that failed."""

    candidate: Annotated[Whole, Field(lt=MAX_CANDIDATES)]
    rung: Annotated[Whole, Field(lt=MAX_RUNGS)]
    changes: dict[Text, Any]
    settings: Annotated[dict[Text, Text], Field(max_length=100)]
    n_train: Whole
    error: Number | None = None
    se: Number | None = None
    scores: Annotated[dict[Text, dict[Text, Number]], Field(max_length=100)] = {}
    seconds: Annotated[Number, Field(ge=0)]
    failed: Text | None = None


class State(Record):
    """The file tuning.json."""

    format: Annotated[Whole, Field(ge=FORMAT, le=FORMAT)]
    title: Text
    n_train: Whole
    n_held_out: Whole
    seconds: Annotated[Number, Field(ge=0)]
    chance: Annotated[dict[Text, dict[Text, Number]], Field(max_length=100)]
    best: Whole | None
    results: Annotated[tuple[Done, ...], Field(max_length=MAX_CANDIDATES * MAX_RUNGS, fail_fast=True)]


def next_step(
    errors: Mapping[tuple[int, int], float | None], n_candidates: int, n_rungs: int
) -> tuple[int, int] | None:
    """The candidate to train next, and its rung, given the errors so far by both (None: it failed).

    The best third of a rung goes on, as soon as it is known, so that a search can stop at any time; else a new one
    begins. Candidate 0, the config as it is, goes on beside the first, for comparison. In the end at least one goes on.
    """
    fresh = next((c for c in range(n_candidates) if (c, 0) not in errors), None)
    for rung in range(n_rungs - 1, 0, -1):
        below = [(error, c) for (c, r), error in errors.items() if r == rung - 1]
        good = sorted((error, c) for error, c in below if error is not None)
        n_going = max(len(below) // ETA, fresh is None)
        for _, candidate in good[:n_going]:
            if (candidate, rung) not in errors:
                return (candidate if (0, rung) in errors else 0), rung
    return None if fresh is None else (fresh, 0)


def best_of(results: Sequence[Done]) -> Done | None:
    """The smallest error on the most samples that at least two candidates were trained on."""
    for rung in range(MAX_RUNGS - 1, -1, -1):
        here = [done for done in results if done.rung == rung and done.error is not None]
        if len(here) > 1 or (here and rung == 0):
            return min(here, key=lambda done: (done.error, done.candidate))
    return None


def relative_error(
    labels: Sequence[Label], scores: Mapping[str, Mapping[str, float]], chance: Mapping[str, Mapping[str, float]]
) -> float:
    """The mean over labels of the error, divided by that of the best constant: 0 is perfect, 1 is chance."""
    found = []
    for label in labels:
        own, usual = scores[label.name], chance[label.name]
        error, worst = (own["mae"], usual["mae"]) if label.is_numeric else (1 - own["rate"], 1 - usual["rate"])
        if worst > 0:
            found.append(error / worst)
    if not found:
        raise ExperimentError("no label differs between the held-out samples; use more data, or other labels")
    return float(np.mean(found))


def error_spread(
    labels: Sequence[Label], true: Mapping[str, Any], estimates: Mapping[str, Any], chance: Mapping[str, Any]
) -> float:
    """The standard error of `relative_error`, from the number of samples; labels are taken as independent."""
    parts = []
    for label in labels:
        known = ~missing(true[label.name])
        own, found, usual = true[label.name][known], estimates[f"estimate {label.name}"][known], chance[label.name]
        worst = usual["mae"] if label.is_numeric else 1 - usual["rate"]
        if worst > 0:
            wrong = np.abs(found - own) if label.is_numeric else found.astype(str) != own.astype(str)
            parts.append((standard_error(wrong.astype(np.float64), label.is_numeric) or 0.0) / worst)
    return float(np.linalg.norm(parts) / max(1, len(parts)))


def read_state(path: Path, candidates: Sequence[Candidate]) -> State:
    """The results of an interrupted search, which must be those of these candidates."""
    with in_one_line(f"{path} cannot be read"):
        state = checked(State, read_json(path, MAX_STATE), path.name)
    for done in state.results:
        known = candidates[done.candidate] if done.candidate < len(candidates) else None
        if known is None or json.loads(json.dumps(known.changes)) != done.changes:
            raise ExperimentError(
                f"{path.parent} holds a search among other candidates; give the same options, or start again (--force)"
            )
    if len({(done.candidate, done.rung) for done in state.results}) < len(state.results):
        raise ExperimentError(f"{path} holds a result twice; start again (--force)")
    return state
