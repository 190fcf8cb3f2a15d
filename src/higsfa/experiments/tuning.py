"""Settings chosen by successive halving on a held-out part of the training data. See docs/experiments.md."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import tomli_w
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from higsfa import sources
from higsfa.evaluation import protocols
from higsfa.evaluation.schema import to_json
from higsfa.experiments import interface, score
from higsfa.experiments.candidates import (
    ETA,
    FORMAT,
    MAX_CANDIDATES,
    MAX_RUNGS,
    Candidate,
    Done,
    State,
    best_of,
    check_options,
    draw,
    error_spread,
    next_step,
    read_state,
    relative_error,
    settings_of,
)
from higsfa.experiments.config import Config, FileData
from higsfa.experiments.data import BLOCK_VALUES, Samples
from higsfa.experiments.interface import ExperimentError, Log, Progress, Silent, in_one_line
from higsfa.experiments.methods import methods_of
from higsfa.experiments.run import CHECKPOINT, begin_folder, check_folder, drop_checkpoint, estimated, write_table
from higsfa.experiments.split import Experiment, Fold, Label, make_sets, open_experiment
from higsfa.io import replacing, write_atomically
from higsfa.training.sources import blocks

STATE, TABLE, PICTURE, BEST, GIVEN = "tuning.json", "tuning.csv", "tuning.png", "best.toml", "given.toml"
FILES = [STATE, TABLE, PICTURE, BEST, GIVEN, "log.txt"]
HELD_OUT = 0.2  # of the training data
FEWEST = 300  # samples of a rung that is not the last
FEWEST_FIT, FEWEST_HELD = 20, 10


class OutOfTime(Exception):
    """The budget is used up."""


class Tuned(NamedTuple):
    """What `tune` found.

    Attributes
    ----------
    folder : path
    config : Config
        The best candidate; also the file best.toml.
    best : dict
        Its result on the most samples, an entry of `results`.
    results : list of dict
        One for each training: "candidate" (0 is the config as given), "settings" and "changes", those that differ from
        the config, "rung" and "n_train", "error" relative to chance (None if it "failed") and its standard error "se",
        "scores", "seconds".
    seconds : float
        Time spent, interruptions left out.

    Examples
    --------
    >>> import tempfile
    >>> from higsfa.experiments import load_config, tune, with_values
    >>> config = with_values(load_config("digits"), {"data.max_samples": 200})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = tune(config, f"{folder}/digits", only=["copies"], n_candidates=2, n_jobs=1)  # a Tuned
    >>> found.config.data.kind, found.results[0]["candidate"]
    ('digits', 0)
    """

    folder: Path
    config: Config
    best: dict[str, Any]
    results: list[dict[str, Any]]
    seconds: float


def tune(
    config: Config,
    folder: str | os.PathLike[str],
    *,
    minutes: float = 30.0,
    n_candidates: int = 27,
    only: Sequence[str] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Choose settings of an experiment on a held-out part of its training data; test data are not looked at.

    Candidates are trained on few samples, the best third of them on three times as many, and again. The config as it is
    always takes part. The folder gets the best candidate as a config (best.toml), and all results as tuning.json, .csv
    and, with matplotlib, .png.

    Parameters
    ----------
    config : Config
    folder : path
    minutes : float, default=30.0
        Time on the clock, interruptions left out. It decides where the search stops, and on nothing else.
    n_candidates : int, default=27
        At most so many.
    only : list of str, optional
        Names of the settings to choose: "front", "colour", "width", "n_components", "copies", "shrinkage", "graph". By
        default all that the config leaves room for.
    vary : dict, optional
        Other keys of the config and the values to try, such as ``{"network.delta_threshold": [1.9, 1.96]}``.
    seed : int, default=0
        Of the split, the order of samples and the candidates.
    resume : bool, default=False
        Continue a search that was interrupted, or one whose time was over, with more minutes.
    overwrite : bool, default=False
        Delete the search in the folder, and start again.
    n_jobs : int, optional
        Threads, instead of those in the config.
    progress : Progress, optional

    Returns
    -------
    Tuned

    Examples
    --------
    >>> import tempfile
    >>> from higsfa.experiments import load_config, tune, with_values
    >>> config = with_values(load_config("digits"), {"data.max_samples": 300})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = tune(config, f"{folder}/digits", only=["copies"], n_candidates=2, n_jobs=1)
    >>> found.best["error"] < 0.5
    True
    """
    folder, progress = Path(folder), progress or Silent()
    config = interface.located(config, Path.cwd())
    _check_numbers(minutes, n_candidates, seed)
    check_options(config, only, vary)
    with interface.of_the_disk(folder):
        check_folder(folder, config, resume=resume, overwrite=overwrite, name=GIVEN, what="search")
        progress.stage("read the data", None)
        experiment = open_experiment(config, n_jobs=config.network.n_jobs)
        pool = _usable(experiment)
        settings = settings_of(config, pool, experiment.labels, only=only, vary=vary)
        candidates = draw(settings, n_candidates, seed)
        state = read_state(folder / STATE, candidates) if resume and (folder / STATE).is_file() else None
        begin_folder(folder, config, overwrite=overwrite, name=GIVEN, files=FILES)
        log = Log(folder / "log.txt", progress)
        search = _Search(config, folder, candidates, log, seed, n_jobs, minutes * 60)
        search.open(experiment, pool)
        search.go_on(state)
        return search.finish()


def _check_numbers(minutes: float, n_candidates: int, seed: int) -> None:
    if not np.isfinite(minutes) or minutes <= 0:
        raise ExperimentError(f"minutes = {minutes} (--minutes) must be more than 0, such as 30")
    if not 2 <= n_candidates <= MAX_CANDIDATES:
        raise ExperimentError(f"n_candidates = {n_candidates} (--candidates) must be from 2 to {MAX_CANDIDATES}")
    if not 0 <= seed < 2**31:
        raise ExperimentError(f"seed = {seed} (--seed) must be from 0 to {2**31 - 1}")


def _usable(experiment: Experiment) -> Samples:
    """Samples that no fold tests on: a choice that saw them would make their scores too good."""
    train = experiment.folds[0].train
    tested: list[NDArray[np.intp]] = []
    if experiment.test_data is experiment.data:
        tested = [fold.test.rows for fold in experiment.folds]
    free = ~np.isin(train.rows, np.concatenate(tested)) if tested else np.ones(len(train), dtype=bool)
    least = FEWEST_FIT + FEWEST_HELD
    if free.sum() < least:
        raise ExperimentError(
            f"only {free.sum()} samples are for training in every fold, and choosing needs {least}: use more data, "
            "or fewer folds (protocol.repeats = 1)"
        )
    return train.subset(np.flatnonzero(free))


def kept_together(samples: Samples) -> NDArray[np.intp]:
    """A group for each sample: its person, joined with those of whom there is an equal picture."""
    digests = [
        hashlib.blake2b(np.ascontiguousarray(image).tobytes(), digest_size=16).digest()
        for _, images in blocks(samples.source, BLOCK_VALUES)
        for image in images
    ]
    _, person = np.unique(samples.groups, return_inverse=True)
    _, image = np.unique(np.array(digests), return_inverse=True)
    n = int(person.max()) + 1
    size = n + int(image.max()) + 1
    edges = coo_matrix((np.ones(len(person)), (person, n + image)), shape=(size, size))
    return np.asarray(connected_components(edges, directed=False)[1][person], dtype=np.intp)


@dataclass
class _Limited:
    """A progress that ends the work when the time is over."""

    progress: Progress
    until: float

    def stage(self, text: str, total: int | None) -> None:
        self._check()
        self.progress.stage(text, total)

    def advance(self, n: int) -> None:
        self._check()
        self.progress.advance(n)

    def remark(self, text: str) -> None:
        if hasattr(self.progress, "remark"):
            self.progress.remark(text)

    def _check(self) -> None:
        if monotonic() > self.until:
            raise OutOfTime


@dataclass
class _Search:
    """A search under way."""

    config: Config
    folder: Path
    candidates: list[Candidate]
    log: Log
    seed: int
    n_jobs: int | None
    budget: float  # seconds
    results: list[Done] = field(default_factory=list)
    spent: float = 0.0  # before this call
    started: float = field(default_factory=lambda: monotonic())  # looked up now

    def open(self, experiment: Experiment, pool: Samples) -> None:
        """Divide the samples: whole groups are held out, the others come in a random order, more at each rung."""
        self.experiment = experiment
        self.pools = {self._data_key(self.config): self._decoded(self.config, pool)}
        self.rows = pool.rows
        groups = kept_together(self.pools[self._data_key(self.config)])
        with in_one_line("the held-out part"):
            ((fit, self.held),) = protocols.random_splits(
                len(pool), 1 - HELD_OUT, groups=groups, random_state=self.seed
            )
        if len(fit) < FEWEST_FIT or len(self.held) < FEWEST_HELD:
            raise ExperimentError(
                f"{len(fit)} samples to train and {len(self.held)} held out are too few to choose by: {FEWEST_FIT} and "
                f"{FEWEST_HELD} are needed, persons and equal "
                "pictures being kept together; use more data"
            )
        order = np.random.default_rng(self.seed).permutation(fit)
        sizes = [len(fit) // ETA**k for k in range(MAX_RUNGS) if k == 0 or len(fit) // ETA**k >= FEWEST]
        self.rungs = [np.sort(order[:size]) for size in reversed(sizes)]
        true = score.truth(self.config, experiment.labels, pool.subset(self.held))
        for label in experiment.labels:
            if score.missing(true[label.name]).all():
                raise ExperimentError(
                    f"label {label.name!r}: no held-out sample has it; use more data, or leave it out"
                )
        constant = score.chance_estimates(experiment.labels, true)
        self.chance = score.scores(experiment.labels, true, constant, chance=True)
        relative_error(experiment.labels, self.chance, self.chance)  # labels that do not differ are an error now

    @staticmethod
    def _data_key(config: Config) -> str:
        return json.dumps(config.data.model_dump(mode="json"), sort_keys=True)

    def _decoded(self, config: Config, pool: Samples) -> Samples:
        """The same samples, with picture files decoded into a file: only of these, so not of test pictures."""
        if not isinstance(config.data, FileData):
            return pool
        name = hashlib.blake2b(self._data_key(config).encode(), digest_size=8).hexdigest()
        with in_one_line("the pictures"):
            cached = sources.cache(pool.source, self.folder / CHECKPOINT / f"images-{name}.npy", rebuild=True)
        return replace(pool, source=cached)

    def _pool(self, config: Config) -> Samples:
        """The samples as the data table of a candidate describes them."""
        key = self._data_key(config)
        if key not in self.pools:
            train = open_experiment(config, n_jobs=config.network.n_jobs).folds[0].train
            found = train.subset(np.flatnonzero(np.isin(train.rows, self.rows)))
            if not np.array_equal(found.rows, self.rows):
                raise ExperimentError(
                    "[data]: it reads other samples than the config as given; they cannot be compared"
                )
            self.pools[key] = self._decoded(config, found)
        return self.pools[key]

    def go_on(self, state: State | None) -> None:
        """Train candidates until there are none, or no time, left."""
        if state is not None:
            same = (state.n_train, state.n_held_out) == (len(self.rungs[-1]), len(self.held))
            sizes = [len(rows) for rows in self.rungs]
            if not same or any(sizes[d.rung : d.rung + 1] != [d.n_train] for d in state.results):
                raise ExperimentError(f"{self.folder} holds a search with other data; start again (--force)")
            self.results, self.spent = list(state.results), state.seconds
        limited = replace(self.log, progress=_Limited(self.log.progress, self.started + self.budget - self.spent))
        try:
            while (step := self._next()) is not None:
                self.results.append(self._train(*step, limited))
                self._write()
        except OutOfTime:
            self.log.note("the time is over")
        finally:
            self._write()

    def _next(self) -> tuple[int, int] | None:
        """The next step; None if none is left, or if it would take longer than the time that is left."""
        errors = {(done.candidate, done.rung): done.error for done in self.results}
        step = next_step(errors, len(self.candidates), len(self.rungs))
        if step is None:
            return None
        left, expected = self.budget - self._seconds(), self._expected(*step)
        if self.results and (left <= 0 or expected > left):
            self.log.note(f"the time is over: {left:.0f} s left, the next training takes about {expected:.0f} s")
            return None
        return step

    def _expected(self, candidate: int, rung: int) -> float:
        """The seconds of a training, from those of the same candidate on fewer samples, or of others on as many."""
        own = [d.seconds for d in self.results if d.candidate == candidate and d.rung == rung - 1]
        others = [d.seconds for d in self.results if d.rung == rung]
        return ETA * own[0] if own else float(np.mean(others)) if others else 0.0

    def _seconds(self) -> float:
        return self.spent + monotonic() - self.started

    def _train(self, number: int, rung: int, log: Log) -> Done:
        candidate, rows = self.candidates[number], self.rungs[rung]
        what = f"candidate {number + 1} of {len(self.candidates)} ({candidate.text})"
        place = self.folder / CHECKPOINT / f"candidate{number}-rung{rung}"
        begun, scores, error, se, failed = monotonic(), {}, None, None, None
        try:
            config = candidate.applied(self.config)
            if self.n_jobs is not None:
                config = interface.with_values(config, {"network.n_jobs": self.n_jobs})
            pool, labels = self._pool(config), self.experiment.labels
            fold = Fold(pool.subset(rows), pool.subset(self.held))
            experiment = replace(self.experiment, scored=labels, folds=[fold])
            method, sets = methods_of(config)[0], make_sets(config, fold)
            *_, arrays, _ = estimated(method, config, experiment, sets, place, log, "threads", what)
            true = score.truth(config, labels, fold.test)
            scores = score.scores(labels, true, arrays)
            error = relative_error(labels, scores, self.chance)
            se = error_spread(labels, true, arrays, self.chance)
        except ExperimentError as problem:
            if number == 0:
                raise
            failed = str(problem)
        shutil.rmtree(place, ignore_errors=True)
        told = f"error {error:.3f} of chance" if failed is None else f"failed: {failed}"
        log.remark(f"{what}, {len(rows):,} samples: {told}")
        return Done.model_validate(
            {
                **{"candidate": number, "rung": rung, "settings": candidate.settings, "n_train": len(rows)},
                "changes": json.loads(json.dumps(candidate.changes)),
                **{"error": error, "se": se, "scores": scores, "seconds": monotonic() - begun, "failed": failed},
            }
        )

    def _state(self) -> State:
        best = best_of(self.results)
        return State(
            format=FORMAT,
            title=self.config.title,
            n_train=len(self.rungs[-1]),
            n_held_out=len(self.held),
            seconds=self._seconds(),
            chance=self.chance,
            best=None if best is None else best.candidate,
            results=tuple(self.results),
        )

    def _write(self) -> None:
        """All files but the picture: what is known so far."""
        state = self._state()
        write_atomically(self.folder / STATE, to_json(state.model_dump(mode="json")))
        write_table(self.folder / TABLE, _columns(state.results, self.experiment.labels))
        if state.best is not None:
            write_atomically(self.folder / BEST, self._best_config(state.best))

    def _best_config(self, number: int) -> bytes:
        candidate = self.candidates[number]
        head = f"# Chosen by higsfa tune: {' '.join(candidate.text.split())}\n\n".encode("utf-8", "replace")
        return head + tomli_w.dumps(candidate.applied(self.config).plain()).encode()

    def finish(self) -> Tuned:
        best = best_of(self.results)
        if best is None:
            raise ExperimentError(
                f"{self.budget / 60:g} minutes were too short for one candidate on {len(self.rungs[0]):,} samples; "
                "give more (--minutes) and continue (--resume)"
            )
        self.log.stage("write the results")
        results = [done.model_dump(mode="json") for done in self.results]
        self._draw(results, best.candidate)
        errors = {(done.candidate, done.rung): done.error for done in self.results}
        if next_step(errors, len(self.candidates), len(self.rungs)) is None:
            drop_checkpoint(self.folder)
        chosen = self.candidates[best.candidate].applied(self.config)
        return Tuned(self.folder, chosen, best.model_dump(mode="json"), results, self._seconds())

    def _draw(self, results: list[dict[str, Any]], best: int) -> None:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            self.log.remark("no picture: install matplotlib with pip install 'higsfa[plots]'")
            return
        from higsfa.plots import plot_tuning

        with replacing(self.folder / PICTURE) as file:
            plot_tuning(results, best=best).savefig(file, format="png", dpi=120)


def _columns(results: Sequence[Done], labels: Sequence[Label]) -> dict[str, list[Any]]:
    """The columns of tuning.csv."""
    names = list(dict.fromkeys(name for done in results for name in done.settings))
    out: dict[str, list[Any]] = {
        "candidate": [done.candidate for done in results],
        "samples": [done.n_train for done in results],
        "error": [done.error for done in results],
        "se": [done.se for done in results],
    }
    for label in labels:
        for key in ("mae", "rmse") if label.is_numeric else ("rate",):
            out[f"{label.name} {key}"] = [done.scores.get(label.name, {}).get(key) for done in results]
    out |= {name: [done.settings.get(name) for done in results] for name in names}
    return {**out, "seconds": [round(done.seconds, 2) for done in results], "failed": [done.failed for done in results]}
