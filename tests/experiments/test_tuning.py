"""Settings chosen on held-out training data: which, on what, in what order, and what is left behind."""

import csv
import json
import shutil
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from higsfa.experiments import ExperimentError, load_config, train, tune, tuning, with_values
from higsfa.experiments.candidates import (
    best_of,
    draw,
    error_spread,
    next_step,
    read_state,
    relative_error,
    settings_of,
)
from higsfa.experiments.data import Samples
from higsfa.experiments.interface import checked
from higsfa.experiments.split import open_experiment
from higsfa.experiments.tuning import HELD_OUT, kept_together
from higsfa.sources import array
from real_run import SIDE
from real_run import draw as spots

FILES = {"best.toml", "given.toml", "log.txt", "tuning.csv", "tuning.json", "tuning.png"}
N_TRAIN, N_TEST = 500, 100
CONFIG = {
    "title": "Spots",
    "data": {"kind": "npz", "labels": ["age", "gender"], "split": "split"},
    "labels": {"age": {"kind": "numeric"}},
    "network": {"layers": [{"field": 6, "n_components": 8, "pca": 8}, {"field": 2, "n_components": 8}], "n_jobs": 1},
    "head": {"n_used_features": 4, "n_classes": {"age": 6}, "covariance": "shared"},
}
OPTIONS = {"only": ["shrinkage"], "vary": {"network.layer_params.delta_threshold": [1.0, 1.9]}, "n_candidates": 6}


def write(folder, images, labels, is_test, **others):
    split = np.where(is_test, "test", "train")
    np.savez(folder / "spots.npz", images=images, split=split, **{k: labels[k] for k in ("age", "gender")}, **others)
    tables = {**CONFIG, "data": {**CONFIG["data"], "file": str(folder / "spots.npz")}}
    return checked(tables, "test")


@pytest.fixture(scope="module")
def spot_data():
    images, labels = spots(N_TRAIN + N_TEST, 3)
    labels["gender"] = labels["gender"].astype(str)
    return images, labels, np.arange(N_TRAIN + N_TEST) >= N_TRAIN


@pytest.fixture(scope="module")
def config(spot_data, tmp_path_factory):
    return write(tmp_path_factory.mktemp("data"), *spot_data)


@pytest.fixture(scope="module")
def few():
    """Rungs of 44, 133 and 400 samples, so that all of them are there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "FEWEST", 40)
        yield


@pytest.fixture(scope="module")
def found(config, few, tmp_path_factory):
    return tune(config, tmp_path_factory.mktemp("tuned") / "search", **OPTIONS)


class Stop:
    """Interrupts a search when a stage begins for the n-th time."""

    def __init__(self, text, count=1):
        self.text, self.left, self.seen = text, count, []

    def stage(self, text, total):
        self.seen.append(text)
        self.left -= self.text in text
        if self.left == 0:
            raise KeyboardInterrupt

    def advance(self, n):
        pass


def essence(results):
    return [{key: value for key, value in done.items() if key != "seconds"} for done in results]


def test_best_thirds_are_trained_on_three_times_as_many_samples(found):
    sizes = {done["rung"]: done["n_train"] for done in found.results}
    assert sizes == {0: 44, 1: 133, 2: 400}
    by_rung = [{d["candidate"]: d["error"] for d in found.results if d["rung"] == rung} for rung in range(3)]
    assert set(by_rung[0]) == set(range(6))
    assert set(by_rung[2]) <= set(by_rung[1]) <= set(by_rung[0])
    assert all(0 in errors for errors in by_rung)  # the config as given is always compared
    best = min(by_rung[2], key=lambda c: (by_rung[2][c], c))
    assert found.best["candidate"] == best
    assert found.best["n_train"] == 400


def test_folder_holds_a_config_a_table_a_record_and_a_picture(found, config):
    assert {path.name for path in found.folder.iterdir()} == FILES
    assert load_config(found.folder / "best.toml").plain() == found.config.plain()
    assert load_config(found.folder / "given.toml").plain() == config.plain()
    with open(found.folder / "tuning.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["error"]) for row in rows] == pytest.approx([done["error"] for done in found.results], rel=1e-6)
    assert [float(row["age mae"]) for row in rows] == pytest.approx([d["scores"]["age"]["mae"] for d in found.results])
    record = json.loads((found.folder / "tuning.json").read_text())
    assert record["results"] == found.results
    with Image.open(found.folder / "tuning.png") as picture:
        assert min(picture.size) > 300
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10


def test_the_result_trains_to_the_score_that_was_found(found, spot_data, tmp_path):
    """With the rows that were held out for testing, and the others for training."""
    images, labels, is_test = spot_data
    pool = np.flatnonzero(~is_test)
    fit, held = split_of(found.config)
    config = write(tmp_path, images[pool], {k: v[pool] for k, v in labels.items()}, np.isin(np.arange(len(pool)), held))
    run = train(with_values(found.config, {"data.file": str(config.data.file)}), tmp_path / "run")
    scores = run.metrics["methods"][0]["labels"]
    assert len(fit) == found.best["n_train"]
    assert scores["age"]["mae"]["mean"] == pytest.approx(found.best["scores"]["age"]["mae"], rel=1e-9)
    assert scores["gender"]["rate"]["mean"] == pytest.approx(found.best["scores"]["gender"]["rate"], rel=1e-9)


def split_of(config, seed=0):
    from higsfa.evaluation.protocols import random_splits

    pool = open_experiment(config).folds[0].train
    ((fit, held),) = random_splits(len(pool), 1 - HELD_OUT, groups=kept_together(pool), random_state=seed)
    return fit, held


def test_test_samples_are_never_read(found, spot_data, few, tmp_path, monkeypatch):
    """With other pictures and labels in their place the search is the same; none is trained, estimated or scored on."""
    images, labels, is_test = spot_data
    other = {name: column.copy() for name, column in labels.items()}
    other["age"][is_test] = 60 - other["age"][is_test]
    other["gender"][is_test] = "M"
    config = write(tmp_path, np.where(is_test[:, None, None], 255 - images, images), other, is_test)
    estimated, seen = tuning.estimated, set()

    def guarded(method, config, experiment, sets, *others):
        for samples in sets:
            seen.update(samples.rows.tolist())
            np.testing.assert_array_equal(np.asarray(samples.source), images[samples.rows])
        return estimated(method, config, experiment, sets, *others)

    monkeypatch.setattr(tuning, "estimated", guarded)
    again = tune(config, tmp_path / "search", **OPTIONS)
    assert seen == set(range(N_TRAIN))
    assert essence(again.results) == essence(found.results)


def test_no_sample_of_any_fold_of_the_test_is_used(config, few, tmp_path):
    folds = with_values(config, {"data.split": None, "protocol": {"kind": "random", "repeats": 3, "test_share": 0.3}})
    experiment = open_experiment(folds)
    used = set(tuning._usable(experiment).rows.tolist())
    assert used
    assert used == set(range(600)).difference(*(fold.test.rows.tolist() for fold in experiment.folds))
    many = with_values(folds, {"protocol.repeats": 40})
    with pytest.raises(ExperimentError, match=r"fewer folds \(protocol.repeats = 1\)"):
        tune(many, tmp_path / "search", **OPTIONS)


def test_persons_and_equal_pictures_stay_together():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (60, 4, 4)).astype(np.uint8)
    images[7], images[30], images[8] = images[3], images[3], images[40]  # equal pictures
    person = np.arange(60) // 2
    groups = kept_together(Samples(array(images), {}, groups=person))
    reach = {i: {j for j in range(60) if person[i] == person[j] or (images[i] == images[j]).all()} for i in range(60)}
    for _ in range(60):  # by brute force: neighbours of neighbours
        reach = {i: set.union(*(reach[j] for j in found)) for i, found in reach.items()}
    for i, j in combinations(range(60), 2):
        assert (groups[i] == groups[j]) == (j in reach[i])


def test_labels_count_by_their_errors_relative_to_chance(config):
    labels = open_experiment(config).labels
    chance = {"age": {"mae": 10.0, "rmse": 12.0}, "gender": {"rate": 0.5}}
    assert relative_error(labels, chance, chance) == 1
    assert relative_error(labels, {"age": {"mae": 4.0}, "gender": {"rate": 0.9}}, chance) == pytest.approx(0.3)
    alike = {**chance, "gender": {"rate": 1.0}}  # a label that does not differ says nothing
    assert relative_error(labels, {"age": {"mae": 4.0}, "gender": {"rate": 1.0}}, alike) == pytest.approx(0.4)
    with pytest.raises(ExperimentError, match="no label differs"):
        relative_error(labels[1:], alike, alike)


def test_standard_error_is_the_spread_over_sets_of_samples(config):
    """Of many sets of held-out samples with independent errors."""
    labels, rng, n = open_experiment(config).labels, np.random.default_rng(0), 200
    chance, found, told = {"age": {"mae": 10.0}, "gender": {"rate": 0.5}}, [], []
    for _ in range(1500):
        true = {"age": np.full(n, 30.0), "gender": np.full(n, "F", dtype=object)}
        estimates = {
            "estimate age": 30 + rng.normal(0, 8, n),
            "estimate gender": rng.choice(["F", "M"], n, p=[0.8, 0.2]),
        }
        mae, rate = np.abs(estimates["estimate age"] - 30).mean(), np.mean(estimates["estimate gender"] == "F")
        found.append(relative_error(labels, {"age": {"mae": mae}, "gender": {"rate": rate}}, chance))
        told.append(error_spread(labels, true, estimates, chance))
    assert np.mean(told) == pytest.approx(np.std(found), rel=0.06)


@given(st.integers(2, 40), st.integers(1, 3), st.integers(0, 2**31), st.floats(0, 0.5))
def test_a_search_ends_with_the_config_as_given_on_every_rung(n, n_rungs, seed, failing):
    """Every step is new, and its candidate was among the best third below, unless it is the config as given."""
    rng, errors = np.random.default_rng(seed), {}
    while (step := next_step(errors, n, n_rungs)) is not None:
        candidate, rung = step
        assert step not in errors
        if rung and candidate:
            below = {c: e for (c, r), e in errors.items() if r == rung - 1 and e is not None}
            better = sum((e, c) < (below[candidate], candidate) for c, e in below.items())
            assert better < max(1, len([key for key in errors if key[1] == rung - 1]) // 3)
            assert (0, rung) in errors
        errors[step] = None if candidate and rng.random() < failing else float(rng.random())
    assert {c for c, r in errors if r == 0} == set(range(n))
    assert all((0, rung) in errors for rung in range(n_rungs))


@pytest.mark.parametrize(("moment", "count"), [("train on 133", 1), ("estimate labels", 6), ("write the results", 1)])
def test_an_interrupted_search_goes_on_to_the_same_result(found, config, few, tmp_path, moment, count):
    folder = tmp_path / "search"
    with pytest.raises(KeyboardInterrupt):
        tune(config, folder, **OPTIONS, progress=Stop(moment, count))
    kept = json.loads((folder / "tuning.json").read_text())["results"]
    assert (folder / "best.toml").exists() == bool(kept)
    with pytest.raises(ExperimentError, match=r"unfinished search.*--resume"):
        tune(config, folder, **OPTIONS)
    watch = Stop("never")
    again = tune(config, folder, **OPTIONS, resume=True, progress=watch)
    assert essence(again.results) == essence(found.results)
    assert again.results[: len(kept)] == kept
    assert len([text for text in watch.seen if "train on" in text]) == len(found.results) - len(kept)
    assert (folder / "best.toml").read_bytes() == (found.folder / "best.toml").read_bytes()
    assert {path.name for path in folder.iterdir()} == FILES


def copied(found, tmp_path):
    shutil.copytree(found.folder, tmp_path / "search")
    return tmp_path / "search"


def test_other_settings_and_other_data_are_not_continued(found, config, few, tmp_path, spot_data):
    folder = copied(found, tmp_path)
    for options in ({**OPTIONS, "vary": None}, {**OPTIONS, "seed": 1}):
        with pytest.raises(ExperimentError, match=r"other (candidates|data).*--force"):
            tune(config, folder, resume=True, **options)
    with pytest.raises(ExperimentError, match="other settings"):
        tune(with_values(config, {"head.n_used_features": 3}), folder, resume=True, **OPTIONS)
    assert (folder / "tuning.json").read_bytes() == (found.folder / "tuning.json").read_bytes()
    more = tune(config, folder, resume=True, **{**OPTIONS, "n_candidates": 8})
    assert essence(more.results)[: len(found.results)] == essence(found.results)
    assert {done["candidate"] for done in more.results} == set(range(8))
    images, labels, is_test = spot_data
    is_test = is_test.copy()
    is_test[:50] = True
    shutil.copy(config.data.file, tmp_path / "kept.npz")
    try:
        write(config.data.file.parent, images, labels, is_test)
        with pytest.raises(ExperimentError, match="other data"):
            tune(config, folder, resume=True, **{**OPTIONS, "n_candidates": 8})
    finally:
        shutil.copy(tmp_path / "kept.npz", config.data.file)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda state: [], "must be an object"),
        (lambda state: {**state, "format": 2}, "format"),
        (lambda state: {**state, "seconds": -1.0}, "seconds"),
        (lambda state: {**state, "results": [{**state["results"][0], "candidate": 10**9}]}, "candidate"),
        (lambda state: {**state, "results": [{**state["results"][0], "candidate": 900}]}, "other candidates"),
        (lambda state: {**state, "results": [{**state["results"][0], "rung": 3}]}, "rung"),
        (lambda state: {**state, "results": [{**state["results"][0], "changes": {"title": "x"}}]}, "other candidates"),
        (lambda state: {**state, "results": [{**state["results"][0], "error": "1"}]}, "error"),
        (lambda state: {**state, "results": state["results"][:1] * 2}, "twice"),
        (lambda state: {**state, "results": [{**state["results"][0], "n_train": 7}]}, "other data"),
    ],
)
def test_a_record_that_is_not_as_it_should_be_is_refused_in_one_line(found, config, few, tmp_path, spoil, words):
    folder = copied(found, tmp_path)
    state = json.loads((folder / "tuning.json").read_text())
    (folder / "tuning.json").write_text(json.dumps(spoil(state)))
    with pytest.raises(ExperimentError, match=words) as error:
        tune(config, folder, resume=True, **OPTIONS)
    assert "\n" not in str(error.value)


def test_a_record_that_is_too_large_or_no_json_is_refused(tmp_path):
    for content in (b"[" * 100_000, b" " * (2**23 + 1), b'{"seconds": NaN}', b"\xff"):
        (tmp_path / "tuning.json").write_bytes(content)
        with pytest.raises(ExperimentError, match=r"tuning\.json"):
            read_state(tmp_path / "tuning.json", [])


class Clock:
    """A minute passes whenever a training begins, another one whenever labels are estimated."""

    def __init__(self):
        self.minutes = 0

    def stage(self, text, total):
        self.minutes += "train on" in text or "estimate" in text

    def advance(self, n):
        pass

    def __call__(self):
        return 60.0 * self.minutes


def test_when_the_time_is_over_the_best_so_far_is_reported(found, config, few, tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(tuning, "monotonic", clock)
    part = tune(config, tmp_path / "search", minutes=7, progress=clock, **OPTIONS)
    n = len(part.results)
    assert 0 < n < len(found.results)
    assert essence(part.results) == essence(found.results)[:n]
    known = [done for done in part.results if done["rung"] == 0]
    assert part.best["error"] in {done["error"] for done in part.results}
    assert part.best["rung"] > 0 or part.best["error"] == min(done["error"] for done in known)
    assert load_config(tmp_path / "search" / "best.toml").plain() == part.config.plain()
    assert "the time is over" in (tmp_path / "search" / "log.txt").read_text()
    more = tune(config, tmp_path / "search", minutes=1000, progress=clock, resume=True, **OPTIONS)
    assert essence(more.results) == essence(found.results)


def test_too_little_time_for_one_candidate_is_an_error_that_can_be_continued(found, config, few, tmp_path):
    with pytest.raises(ExperimentError, match=r"too short for one candidate.*--minutes.*--resume"):
        tune(config, tmp_path / "search", minutes=1e-9, **OPTIONS)
    assert not (tmp_path / "search" / "best.toml").exists()
    more = tune(config, tmp_path / "search", minutes=60, resume=True, **OPTIONS)
    assert essence(more.results) == essence(found.results)


def test_a_candidate_that_cannot_be_trained_loses(config, few, tmp_path):
    vary = {"network.layer_params.expansion": ["identity | quadratic[:500]", "identity"]}
    found = tune(config, tmp_path / "search", only=["shrinkage"], vary=vary, n_candidates=5)
    failed = [done for done in found.results if done["failed"]]
    assert all(done["error"] is None and "quadratic" in done["failed"] for done in failed)
    assert found.best["failed"] is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": ["depth"]}, "no setting 'depth'; use some of front, colour, width"),
        ({"only": ["copies"]}, "leaves no choice of 'copies', but of 'width', 'shrinkage', 'graph'"),
        ({"vary": {"network.depth": [1, 2]}}, "unknown key 'depth'"),
        ({"vary": {"network.width": 2}}, "needs a list of values"),
        ({"only": []}, "nothing to choose"),
        ({"minutes": 0}, "--minutes"),
        ({"minutes": float("nan")}, "--minutes"),
        ({"n_candidates": 1}, "--candidates"),
        ({"seed": -1}, "--seed"),
    ],
)
def test_wrong_options_are_told_before_a_folder_is_made(config, tmp_path, options, words):
    with pytest.raises(ExperimentError, match=words):
        tune(config, tmp_path / "search", **options)
    assert not (tmp_path / "search").exists()


def test_data_without_labels_or_with_too_few_samples_are_told(config, tmp_path):
    with pytest.raises(ExperimentError, match="labels"):
        tune(with_values(config, {"data.labels": None, "labels": {}}), tmp_path / "search")
    with pytest.raises(ExperimentError, match=r"only \d+ samples"):
        tune(with_values(config, {"data.max_samples": 20}), tmp_path / "search")


def names(config):
    experiment = open_experiment(config)
    return {
        s.name: [o.text for o in s.options] for s in settings_of(config, experiment.folds[0].train, experiment.labels)
    }


def test_settings_follow_from_the_config(config, pictures, small):
    assert names(config) == {
        "width": ["0.7", "1.4"],
        "shrinkage": ["0.01", "0.1", "auto"],
        "graph": ["age x 3", "gender x 3", "serial"],
    }
    grey = small("folder", data__folder=str(pictures), data__csv=str(pictures / "labels.csv"), data__labels=["age"])
    found = names(grey)
    assert set(found) == {"front", "n_components", "copies", "shrinkage", "graph"}  # one node: no layers to widen
    assert found["front"] == ["none"]
    assert found["copies"] == ["none", "2", "4", "8"]
    assert found["graph"] == ["serial"]
    for path in sorted(pictures.glob("*.png"))[::3]:
        Image.open(path).convert("RGB").point(lambda value: value // 2).save(path)
    assert names(grey)["colour"] == ["grey"]
    assert names(with_values(grey, {"data.colour": False}))["colour"] == ["colour"]


def test_colour_and_grey_are_compared_on_the_same_pictures(pictures, small, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "FEWEST_HELD", 5)
    for path in sorted(pictures.glob("*.png")):
        Image.open(path).convert("RGB").save(path)
    config = small(
        "folder",
        data__folder=str(pictures),
        data__csv=str(pictures / "labels.csv"),
        data__labels=["age"],
        data__person_column="person",
        network__front="none",
        network__layer_params={"shrinkage": 0.0},
    )
    found = tune(config, tmp_path / "search", only=["colour"])
    assert [done["settings"] for done in found.results] == [{}, {"colour": "grey"}]
    assert all(done["failed"] is None for done in found.results)


def test_candidates_are_different_begin_with_the_config_and_do_not_depend_on_their_number(config):
    experiment = open_experiment(config)
    settings = settings_of(config, experiment.folds[0].train, experiment.labels)
    every = draw(settings, 1000, seed=1)
    assert len(every) == 3 * 4 * 4
    assert every[0].changes == {}
    assert len({json.dumps(candidate.changes) for candidate in every}) == len(every)
    assert draw(settings, 7, seed=1) == every[:7]
    assert draw(settings, 7, seed=2) != every[:7]
    for candidate in every:
        candidate.applied(config)  # all are valid


def test_width_scales_every_layer_but_the_top(config):
    from higsfa.experiments.methods import make_network

    labels = open_experiment(config).labels
    plain, wide = (
        make_network(with_values(config, {"network.width": width}), labels, (SIDE, SIDE)) for width in (1.0, 1.5)
    )
    assert [layer.n_components for layer in plain.layers] == [8, 8]
    assert [layer.n_components for layer in wide.layers] == [12, 8]


def test_the_best_is_taken_where_two_were_compared(found):
    from higsfa.experiments.candidates import Done

    results = [Done.model_validate(done) for done in found.results]
    alone = [done for done in results if done.rung == 0] + [d for d in results if d.rung == 1 and d.candidate == 0]
    best = best_of(alone)
    assert best.rung == 0
    assert best.error == min(done.error for done in alone if done.rung == 0)
    assert best_of([]) is None
