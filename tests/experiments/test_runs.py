import csv
import errno
import json

import numpy as np
import pytest

from higsfa.experiments import (
    ExperimentError,
    compare,
    evaluate,
    load_config,
    open_run,
    read_pictures,
    run_folder,
    train,
    with_values,
)

FILES = {
    "config.toml",
    "model.higsfa",
    "head.higsfa",
    "metrics.json",
    "predictions.csv",
    "examples.npz",
    "environment.json",
    "log.txt",
}
FEW_FACES = {
    "data.n_train": 120,
    "data.n_test": 40,
    "data.size": 24,
    "network.n_components": 10,
    "network.n_jobs": 1,
    "distortion.copies": 2,
    "distortion.supervised_copies": 1,
    "head.n_features": 4,
    "comparison.methods": ["pca", "chance"],
    "comparison.n_features": {"pca": {"age": 4, "gender": 4, "race": "cv"}},
}


def rows_of(run):
    with open(run.folder / "predictions.csv", newline="") as file:
        return list(csv.DictReader(file))


def scores_of(run, method=0):
    return run.metrics["methods"][method]["labels"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    config = with_values(
        load_config("digits"),
        {"network.n_jobs": 1, "data.max_samples": 600, "head.n_features": 9, "network.n_components": 20},
    )
    return train(config, tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture(scope="module")
def few_faces(tmp_path_factory):
    return train(with_values(load_config("faces"), FEW_FACES), tmp_path_factory.mktemp("runs") / "faces")


def test_folder_holds_what_the_page_says(digits):
    assert {path.name for path in digits.folder.iterdir()} == FILES
    assert digits.metrics["format"] == 1
    assert set(digits.metrics) == {
        *("format", "title", "created", "higsfa", "data", "labels", "n_folds"),
        *("methods", "layers", "sensitivity", "warnings"),
    }
    roles = [method["role"] for method in digits.metrics["methods"]]
    assert roles == ["main", "comparison", "comparison", "comparison", "chance"]
    assert [method["name"] for method in digits.metrics["methods"]] == ["HiGSFA", "HGSFA", "PCA", "PCA + LDA", "chance"]
    assert json.loads((digits.folder / "environment.json").read_text())["packages"]["numpy"] == np.__version__


def test_digits_scores_agree_with_the_predictions(digits):
    rows = rows_of(digits)
    rate = scores_of(digits)["digit"]["rate"]
    by_fold = []
    for fold in ("0", "1"):
        some = [row for row in rows if row["fold"] == fold]
        by_fold.append(np.mean([row["digit"] == row["digit_estimate"] for row in some]))
        assert len({row["sample"] for row in some}) == len(some)
    np.testing.assert_allclose(rate["values"], by_fold)
    np.testing.assert_allclose([rate["mean"], rate["se"]], [np.mean(by_fold), abs(by_fold[0] - by_fold[1]) / 2])
    assert rate["mean"] > 0.9
    confusion = np.array(scores_of(digits)["digit"]["confusion"])
    assert confusion.sum() == len(rows)
    assert confusion[3].sum() == sum(row["digit"] == "3" for row in rows)
    probabilities = digits.predictions["digit_probability"]
    assert probabilities.min() > 0.1
    assert probabilities.max() <= 1
    chance = scores_of(digits, -1)["digit"]["rate"]["mean"]
    counts = [np.unique([r["digit"] for r in rows if r["fold"] == f], return_counts=True)[1] for f in "01"]
    np.testing.assert_allclose(chance, np.mean([c.max() / c.sum() for c in counts]))


def test_pca_reconstruction_is_that_of_least_squares(digits):
    pca = digits.metrics["methods"][2]["reconstruction_error"]
    main = digits.metrics["methods"][0]["reconstruction_error"]
    slow_only = digits.metrics["methods"][1]["reconstruction_error"]
    assert pca["top_down"] is None
    assert 0 < pca["global"] < main["global"] < slow_only["global"] < 1
    assert main["global"] <= main["top_down"] < 1


def test_examples_belong_to_the_last_fold(digits):
    examples = digits.examples
    assert examples["images"].shape == (16, 8, 8)
    assert examples["reconstructions"].shape == (3, 16, 8, 8)
    assert examples["reconstruction_names"].tolist() == ["HiGSFA", "HGSFA", "PCA"]
    assert set(digits.predictions["fold"][examples["feature_rows"]]) == {1}
    from sklearn.datasets import load_digits

    samples = np.sort(np.random.default_rng(0).choice(1797, 600, replace=False))
    rows = samples[digits.predictions["sample"][examples["feature_rows"]]]
    images = (load_digits().images[rows] / 16).astype(np.float32)
    np.testing.assert_allclose(digits.network.transform(images)[:, :20], examples["features"], atol=1e-4)
    for image in examples["images"]:
        assert np.min(np.abs(images - image).max(axis=(1, 2))) < 1e-6


def test_saved_model_gives_the_scores_of_the_last_fold(digits, few_faces):
    for run, label, score in ((digits, "digit", "rate"), (few_faces, "age", "mae")):
        found = evaluate(run)
        assert found["labels"][label][score]["mean"] == pytest.approx(scores_of(run)[label][score]["values"][-1])


def test_faces_ages_are_scored_in_whole_years(few_faces):
    rows = rows_of(few_faces)
    true, estimate = (np.array([float(row[key]) for row in rows]) for key in ("age", "age_estimate"))
    assert np.all(true == np.floor(true))
    assert np.all(estimate == np.floor(estimate))
    found = scores_of(few_faces)["age"]
    assert found["mae"]["mean"] == pytest.approx(np.mean(abs(true - estimate)))
    assert found["mae"]["se"] is None
    assert found["rmse"]["mean"] == pytest.approx(np.sqrt(np.mean((true - estimate) ** 2)))
    at_5 = found["cumulative"]["thresholds"].index(5)
    assert found["cumulative"]["scores"][at_5] == pytest.approx(np.mean(abs(true - estimate) <= 5))
    assert sum(found["by_label"]["count"]) == 40
    chance = scores_of(few_faces, -1)["age"]
    assert chance["mae"]["mean"] == pytest.approx(np.mean(abs(true - np.median(true))))
    assert chance["rmse"]["mean"] == pytest.approx(true.std())
    assert few_faces.metrics["data"]["copies"] == 2
    assert few_faces.metrics["labels"][1] == {
        "name": "gender", "kind": "categorical", "unit": None, "classes": ["F", "M"]
    }  # fmt: skip


def test_toy_shows_the_loss_of_information(tmp_path):
    values = {"data.n_train": 4000, "data.n_test": 1000, "network.n_jobs": 1}
    run = train(with_values(load_config("toy"), values), tmp_path / "toy")
    assert scores_of(run)["s1"]["rate"]["mean"] > 0.99
    assert scores_of(run, 1)["s1"]["rate"]["mean"] < 0.8
    assert run.metrics["methods"][0]["delta"]["label"] == "time"
    assert run.metrics["data"]["image_shape"] is None
    assert set(run.examples) == {"features", "feature_rows"}
    with pytest.raises(ExperimentError, match="not on grey pictures"):
        read_pictures(run, [tmp_path])


class Interrupt:
    """Stops a run when a stage begins."""

    def __init__(self, text):
        self.text, self.seen = text, []

    def stage(self, text, total):
        self.seen.append(text)
        if self.text in text:
            raise KeyboardInterrupt

    def advance(self, n):
        assert n > 0


@pytest.mark.parametrize("moment", ["HGSFA, fold 1: train", "HiGSFA, fold 2: estimate", "write the results"])
def test_interrupted_run_goes_on_to_the_same_results(digits, tmp_path, moment):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(digits.config, folder, progress=Interrupt(moment))
    with pytest.raises(ExperimentError, match="not finished"):
        open_run(folder)
    with pytest.raises(ExperimentError, match="--resume"):
        train(digits.config, folder)
    other = with_values(digits.config, {"network.n_components": 19})
    with pytest.raises(ExperimentError, match="another experiment"):
        train(other, folder, resume=True)
    watch = Interrupt("nothing")
    run = train(digits.config, folder, resume=True, n_jobs=2, progress=watch)
    assert not any("HiGSFA, fold 1: train" in text for text in watch.seen)
    assert (folder / "predictions.csv").read_text() == (digits.folder / "predictions.csv").read_text()
    assert scores_of(run) == scores_of(digits)
    assert {path.name for path in folder.iterdir()} == FILES


def test_finished_run_is_not_overwritten_unless_asked(few_faces, tmp_path):
    before = (few_faces.folder / "metrics.json").read_bytes()
    with pytest.raises(ExperimentError, match="finished run"):
        train(few_faces.config, few_faces.folder)
    assert train(few_faces.config, few_faces.folder, resume=True).metrics == few_faces.metrics
    assert (few_faces.folder / "metrics.json").read_bytes() == before
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "notes.txt").write_text("mine")
    with pytest.raises(ExperimentError, match="not empty"):
        train(few_faces.config, tmp_path / "own", overwrite=True)
    assert (tmp_path / "own" / "notes.txt").read_text() == "mine"


def test_overwriting_replaces_the_run_and_keeps_other_files(tmp_path):
    config = with_values(load_config("toy"), {"data.n_train": 500, "data.n_test": 100, "network.n_jobs": 1})
    train(config, tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    run = train(with_values(config, {"title": "again"}), tmp_path / "run", overwrite=True)
    assert run.metrics["title"] == "again"
    assert (tmp_path / "run" / "notes.txt").exists()


def test_full_disk_is_one_error_and_leaves_the_run_resumable(tmp_path, monkeypatch):
    config = with_values(load_config("toy"), {"data.n_train": 500, "data.n_test": 100, "network.n_jobs": 1})
    write = run_folder.write_atomically

    def fail(path, data):
        if path.name == "predictions.csv":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(run_folder, "write_atomically", fail)
    with pytest.raises(ExperimentError, match=r"full.*--resume"):
        train(config, tmp_path / "run")
    monkeypatch.undo()
    assert not (tmp_path / "run" / "metrics.json").exists()
    watch = Interrupt("nothing")
    train(config, tmp_path / "run", resume=True, progress=watch)
    assert not any("train on" in text for text in watch.seen)


def test_sensitivity_and_layers(tmp_path):
    few = {key: value for key, value in FEW_FACES.items() if not key.startswith("distortion")}
    values = {**few, "comparison.methods": ["chance"], "comparison.sensitivity": [1.5, 1.96], "data.n_train": 60}
    run = train(with_values(load_config("faces"), values), tmp_path / "run")
    rows = run.metrics["sensitivity"]
    assert [row["delta_threshold"] for row in rows] == [1.5, 1.96]
    # The default threshold is 1.96, so the second row repeats the main method.
    assert rows[1]["mae"]["age"] == pytest.approx(scores_of(run)["age"]["mae"]["mean"])
    assert rows[1]["rate"]["gender"] == pytest.approx(scores_of(run)["gender"]["rate"]["mean"])
    assert len(run.metrics["layers"]) == len(run.network.layers_)
    assert run.metrics["layers"][0]["nodes"] == len(run.network.layers_[0].nodes)


def test_compare_lists_every_method_of_every_run(digits, few_faces):
    table = compare([digits, few_faces])
    assert [label["name"] for label in table["labels"]] == ["digit", "age", "gender", "race"]
    assert len(table["rows"]) == 8
    row = table["rows"][5]
    assert (row["run"], row["method"]) == ("faces", "HiGSFA")
    assert row["scores"]["age"]["mae"] == scores_of(few_faces)["age"]["mae"]
    with pytest.raises(ExperimentError, match="no runs"):
        compare([])


def test_damaged_run_folders_are_refused(tmp_path, few_faces):
    with pytest.raises(ExperimentError, match="no folder"):
        open_run(tmp_path / "none")
    with pytest.raises(ExperimentError, match="not the folder of a run"):
        open_run(tmp_path)
    (tmp_path / "config.toml").write_bytes((few_faces.folder / "config.toml").read_bytes())
    for text, words in (("{", "cannot be read"), ("[]", "JSON object"), ('{"format": 9}', "format 9")):
        (tmp_path / "metrics.json").write_text(text)
        with pytest.raises(ExperimentError, match=words):
            open_run(tmp_path)


def test_numbers_that_are_not_finite_become_null(tmp_path):
    run_folder.write_json(tmp_path / "a.json", {"a": [1.5, float("nan")], "b": {"c": float("inf"), "d": "x"}})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": [1.5, None], "b": {"c": None, "d": "x"}}
