"""Folders of runs: made, resumed, kept, refused."""

import csv
import errno
import json
import os
import re
import shutil

import numpy as np
import pytest

from higsfa.evaluation.schema import to_json
from higsfa.experiments import ExperimentError, Run, compare, load_config, train, with_values
from higsfa.experiments import run as run_folder
from higsfa.experiments.split import open_experiment
from real_run import QUICK

FILES = {
    "config.toml",
    "model.higsfa",
    "head.higsfa",
    "decoder.safetensors",
    "metrics.json",
    "predictions.csv",
    "examples.npz",
    "environment.json",
    "log.txt",
}


@pytest.fixture(scope="module")
def config(real):
    """Two folds and two networks, in half a second."""
    compared = {"methods": ["hgsfa", "chance"], "n_used_features": {"hgsfa": 6}}
    return with_values(load_config(real.config), {**QUICK, "protocol.repeats": 2, "comparison": compared})


@pytest.fixture(scope="module")
def quick(config, tmp_path_factory):
    return train(config, tmp_path_factory.mktemp("runs") / "quick")


class Watch:
    """Sees the stages of a run, and stops it when one begins."""

    def __init__(self, text="nothing"):
        self.text, self.seen, self.totals, self.steps = text, [], {}, 0

    def stage(self, text, total):
        self.seen.append(text)
        self.totals[text] = total
        if self.text in text:
            raise KeyboardInterrupt

    def advance(self, n):
        assert n > 0
        self.steps += n


def test_folder_holds_what_the_page_says(quick):
    assert {path.name for path in quick.folder.iterdir()} == FILES


def test_progress_counts_every_sample_of_every_pass(config, tmp_path):
    watch = Watch()
    train(with_values(config, {"protocol.repeats": 1}), tmp_path / "run", progress=watch)
    assert watch.seen == [
        "read the data",
        *(
            f"{name}: {text}"
            for name in ("HiGSFA", "HGSFA")
            for text in (
                "train on 300 samples",
                "features of 300 training samples",
                "features of 100 test samples",
                "estimate labels",
                "reconstruct",
            )
        ),
        "write the results",
    ]
    totals = [total for total in watch.totals.values() if total is not None]
    assert len(totals) == 2
    assert all(total % 300 == 0 for total in totals)
    assert 0 < watch.steps <= sum(totals)
    log = (tmp_path / "run" / "log.txt").read_text()
    for text in (*watch.seen[1:], "fold 1 of 1: 300 to train, 100 to test", "finished"):
        assert re.search(rf"^\S+ +\d+\.\d s  {re.escape(text)}$", log, re.MULTILINE), text


@pytest.mark.parametrize("moment", ["HGSFA, fold 1: train", "HiGSFA, fold 2: estimate", "write the results"])
def test_interrupted_run_goes_on_to_the_same_results(real, quick, config, tmp_path, moment):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(config, folder, progress=Watch(moment))
    with pytest.raises(ExperimentError, match="not finished"):
        Run(folder)
    with pytest.raises(ExperimentError, match=r"unfinished run.*--resume"):
        train(config, folder)
    other = with_values(config, {"head.n_used_features": 5})
    with pytest.raises(ExperimentError, match="other settings"):
        train(other, folder, resume=True)
    watch = Watch()
    run = train(with_values(config, {"network.memory_limit": "1GB"}), folder, resume=True, n_jobs=2, progress=watch)
    assert not any("HiGSFA, fold 1: train" in text for text in watch.seen)
    assert ("HGSFA, fold 2: train on 300 samples" in watch.seen) == (moment != "write the results")
    assert (folder / "predictions.csv").read_bytes() == (quick.folder / "predictions.csv").read_bytes()
    assert np.array_equal(run.network.transform(real.images), quick.network.transform(real.images))
    for found, expected in zip(run.metrics["methods"], quick.metrics["methods"], strict=True):
        assert found["labels"] == expected["labels"]
        assert found["reconstruction_error"] == expected["reconstruction_error"]
    assert {path.name for path in folder.iterdir()} == FILES


def test_finished_run_is_not_overwritten_unless_asked(quick, config, tmp_path):
    before = (quick.folder / "metrics.json").read_bytes()
    with pytest.raises(ExperimentError, match=r"finished run.*--force"):
        train(config, quick.folder)
    watch = Watch()
    assert train(config, quick.folder, resume=True, progress=watch).metrics == quick.metrics
    assert watch.seen == []
    assert (quick.folder / "metrics.json").read_bytes() == before
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(ExperimentError, match="not empty"):
            train(config, tmp_path / "own", overwrite=overwrite)
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["notes.txt"]
    with pytest.raises(ExperimentError, match="is a file"):
        train(config, tmp_path / "own" / "notes.txt")


def test_overwriting_replaces_the_run_and_keeps_other_files(quick, config, tmp_path):
    shutil.copytree(quick.folder, tmp_path / "run")
    for name in ("notes.txt", "report.html", "explorer.html", "decoder.npz"):
        (tmp_path / "run" / name).write_text("of the old run")
    changes = {"title": "again", "protocol.repeats": 1, "comparison": {"methods": ["chance"]}}
    run = train(with_values(config, changes), tmp_path / "run", overwrite=True)
    assert run.metrics["title"] == "again"
    assert {path.name for path in (tmp_path / "run").iterdir()} == FILES | {"notes.txt"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data.folder": "/nowhere"}, "nowhere"),
        ({"data.csv": "/nowhere.csv"}, "nowhere"),
        ({"data.labels": ["height"]}, "height"),
        ({"network.layers": [{"field": 20}]}, "network"),
        ({"graph.parts": [{"kind": "serial", "label": "height"}]}, "height"),
        ({"network.n_jobs": 0}, "n_jobs"),
    ],
)
def test_a_run_that_cannot_begin_leaves_no_folder_and_no_old_run_is_lost(quick, config, tmp_path, change, words):
    wrong = with_values(config, change)
    with pytest.raises(ExperimentError, match=words):
        train(wrong, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    shutil.copytree(quick.folder, tmp_path / "run")
    with pytest.raises(ExperimentError, match=words):
        train(wrong, tmp_path / "run", overwrite=True)
    assert Run(tmp_path / "run").metrics == quick.metrics


def test_the_corrected_command_goes_where_the_wrong_one_was_to_go(config, tmp_path):
    quicker = with_values(config, {"protocol.repeats": 1, "comparison": {"methods": ["chance"]}})
    with pytest.raises(ExperimentError, match="nowhere"):
        train(with_values(quicker, {"data.folder": "/nowhere"}), tmp_path / "run")
    assert train(quicker, tmp_path / "run").metrics["n_folds"] == 1


def test_full_disk_is_one_error_and_leaves_the_run_resumable(config, tmp_path, monkeypatch):
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
    watch = Watch()
    train(config, tmp_path / "run", resume=True, progress=watch)
    assert not any("train on" in text for text in watch.seen)


def test_other_errors_of_the_disk_are_one_error_too(config, tmp_path, monkeypatch):
    def fail(path, data):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(run_folder, "write_atomically", fail)
    with pytest.raises(ExperimentError, match=r"stopped.*Input/output error"):
        train(config, tmp_path / "run")


def test_compare_lists_every_method_of_every_run(real, quick, tmp_path):
    table = compare([real.run, quick])
    assert [label["name"] for label in table["labels"]] == ["age", "gender", "race", "strength"]
    assert [(row["run"], row["method"], row["role"]) for row in table["rows"][4:7]] == [
        ("spots", "chance", "chance"),
        ("quick", "HiGSFA", "main"),
        ("quick", "HGSFA", "comparison"),
    ]
    main = quick.metrics["methods"][0]["labels"]
    assert table["rows"][5]["scores"]["age"] == {key: main["age"][key] for key in ("mae", "rmse")}
    assert table["rows"][5]["scores"]["race"] == {"rate": main["race"]["rate"]}
    with pytest.raises(ExperimentError, match="no runs"):
        compare([])
    shutil.copytree(quick.folder, tmp_path / "other")
    text = (tmp_path / "other" / "metrics.json").read_text()
    (tmp_path / "other" / "metrics.json").write_text(text.replace('"categorical"', '"numeric"'))
    with pytest.raises(ExperimentError, match=r"'gender' is categorical in one run and numeric in other"):
        compare([quick, Run(tmp_path / "other")])


@pytest.fixture
def tampered(quick, tmp_path):
    def make(change):
        folder = tmp_path / "tampered"
        shutil.copytree(quick.folder, folder, dirs_exist_ok=True)
        metrics = json.loads((folder / "metrics.json").read_text())
        change(metrics)
        (folder / "metrics.json").write_text(json.dumps(metrics))
        return folder

    return make


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(labels=3), "labels must be a list"),
        (lambda m: m.update(labels=[1]), r"labels\[0\] must be an object"),
        (lambda m: m["labels"][0].pop("kind"), r"labels\[0\].kind"),
        (lambda m: m.update(methods=[]), "exactly one method of role main"),
        (lambda m: m["methods"][0].update(labels=[]), r"methods\[0\].labels"),
        (lambda m: m["methods"][0]["labels"]["age"].update(mae="good"), r"methods\[0\].labels.age.mae"),
        (lambda m: m["methods"][0]["labels"]["age"]["mae"].pop("mean"), r"age.mae.mean is missing"),
        (lambda m: m["data"].update(pixel_range=[255, 0]), "data.pixel_range must be the values of black and white"),
        (lambda m: m["data"].update(cropping="nose"), "data.cropping must be 'eyes' or 'centre'"),
        (lambda m: m.update(format=9), "format must be 1"),
        (lambda m: m.pop("data"), "data is missing"),
    ],
)
def test_tampered_metrics_are_refused_by_key(tampered, change, words):
    with pytest.raises(ExperimentError, match=words):
        Run(tampered(change))


def test_scores_that_are_not_there_leave_a_gap_in_a_comparison(tampered):
    def change(metrics):
        metrics["methods"][0]["labels"]["age"] = None
        metrics["methods"][1]["labels"] = None
        metrics["methods"][2]["labels"]["age"]["mae"] = None

    rows = compare([Run(tampered(change))])["rows"]
    assert set(rows[0]["scores"]) == {"gender", "race", "strength"}
    assert rows[1]["scores"] == {}
    assert set(rows[2]["scores"]["age"]) == {"rmse"}


def test_damaged_run_folders_are_refused(tmp_path, quick):
    with pytest.raises(ExperimentError, match="no folder"):
        Run(tmp_path / "none")
    with pytest.raises(ExperimentError, match="not the folder of a run"):
        Run(tmp_path)
    (tmp_path / "config.toml").write_bytes((quick.folder / "config.toml").read_bytes())
    with pytest.raises(ExperimentError, match="not finished"):
        Run(tmp_path)
    for text, words in (("{", "not JSON"), ("[]", "must be an object"), ("\ud800", "UTF-8"), ('{"a": NaN}', "NaN")):
        (tmp_path / "metrics.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        with pytest.raises(ExperimentError, match=words):
            Run(tmp_path)


def read_all(folder):
    run = Run(folder)
    return run.predictions, run.examples, run.network


@pytest.mark.parametrize("name", ["config.toml", "predictions.csv", "examples.npz", "model.higsfa", "log.txt"])
def test_a_pipe_in_a_run_folder_is_refused_and_not_waited_for(quick, config, tmp_path, name, alarm):
    folder = tmp_path / "run"
    shutil.copytree(quick.folder, folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    if name == "log.txt":
        (folder / "metrics.json").unlink()
        with pytest.raises(ExperimentError, match=r"log\.txt"):
            train(config, folder, resume=True)
        return
    with pytest.raises(ExperimentError, match=r"not a regular file|not finished"):
        read_all(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line of names"),
        ("fold,age\n0,1\n0\n", "row 2 has 1 fields"),
        ("fold,age,age\n0,1,2\n", "all different"),
        ("fold,age\nx,1\n", "row 1 of fold must be a number"),
        ("fold,age\n,1\n", "row 1 of fold must be a number"),
        ("fold,age\n0,old\n", "row 1 of age must be a number, found 'old'"),
    ],
)
def test_damaged_predictions_are_refused(quick, tmp_path, text, words):
    shutil.copytree(quick.folder, tmp_path / "run")
    (tmp_path / "run" / "predictions.csv").write_text(text)
    with pytest.raises(ExperimentError, match=words):
        read_all(tmp_path / "run")


def test_json_has_no_nan_no_halves_of_characters_and_lists_of_numbers_on_one_line():
    content = {
        "a": [1.5, float("nan"), -2],
        "b": {"c": float("inf"), "d": "[ 1,\n  2 ]", "e": "f\udcff.png"},
        "m": [[1, 2], []],
    }
    text = to_json(content).decode("utf-8")
    assert json.loads(text) == {
        "a": [1.5, None, -2],
        "b": {"c": None, "d": "[ 1,\n  2 ]", "e": "f?.png"},
        "m": [[1, 2], []],
    }
    assert '"a": [1.5, null, -2],' in text


def test_tables_keep_numbers_and_guard_texts(tmp_path):
    columns = {
        "=a": ["=1+1", "-x", "+1", "@b", "\tc", "'d", None],
        "n": np.array([-1.5, 1e-9, np.nan, 3.0, 123456.789, 0.0, -0.25]),
        "i": [-1, 2, 3, 4, 5, 6, 7],
        "file": ["a\udcff.png", "-1.5e-3", "-", "", "x", "ü", "\r"],
    }
    run_folder.write_table(tmp_path / "a.csv", columns)
    lines = (tmp_path / "a.csv").read_bytes().split(b"\n")
    assert lines[0] == b"'=a,n,i,file"
    assert lines[1] == b"'=1+1,-1.5,-1,a\xff.png"
    assert lines[2] == b"'-x,1e-09,2,-1.5e-3"
    assert lines[3] == b"+1,,3,'-"
    assert lines[4] == b"'@b,3,4,"
    assert lines[5] == b"'\tc,123456.8,5,x"
    assert lines[6] == "''d,0,6,ü".encode()
    assert lines[7] == b""",-0.25,7,"'\r\""""
    with open(tmp_path / "a.csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
        assert [row[3] for row in csv.reader(file)][1:] == ["a\udcff.png", "-1.5e-3", "'-", "", "x", "ü", "'\r"]


def test_guarded_texts_come_back_as_they_were(tmp_path):
    from higsfa.report.reading import read_columns

    texts = np.array(["=1", "'", "''x", "+1", "-", "plain", "@", None, "a,b\n'c"], dtype=object)
    run_folder.write_table(tmp_path / "a.csv", {"=kind": texts, "=kind_estimate": texts[::-1]})
    read = read_columns(tmp_path / "a.csv", {"=kind"}, max_bytes=10**6)
    assert read["=kind"].tolist() == texts.tolist()
    assert read["=kind_estimate"].tolist() == texts[::-1].tolist()


def test_at_most_2000_samples_and_20_features_are_kept_for_figures(tmp_path):
    """The toy signals, in the order of time."""
    layers = [{"field": 20, "n_components": 25, "expansion": "identity | quadratic"}]
    changes = {"data.n_train": 2000, "data.n_test": 2500, "network.layers": layers, "network.n_jobs": 1}
    config = with_values(load_config("toy"), {**changes, "comparison.methods": ["chance"], "head.n_used_features": 4})
    shape = open_experiment(config).folds[0].train.source.shape
    layers[0]["field"] = list(shape)
    run = train(with_values(config, {"network.layers": layers}), tmp_path / "run")
    assert run.examples["features"].shape == (2000, 20)
    assert run.examples["feature_rows"][[0, -1]].tolist() == [0, 2499]
    assert run.metrics["methods"][0]["delta"]["label"] == "time"
    assert run.metrics["data"]["image_shape"] is None


def test_gsfa_on_principal_components_finds_the_hidden_signal_of_the_toy(tmp_path):
    """All four inputs are seen at once, so the product of two of them, the slowest signal, is found."""
    changes = {"data.n_train": 3000, "data.n_test": 1000, "network.n_jobs": 1, "comparison.methods": ["gsfa"]}
    run = train(
        with_values(load_config("toy"), changes | {"comparison.n_used_features": {"gsfa": 1}}), tmp_path / "run"
    )
    method = run.metrics["methods"][1]
    assert method["name"] == "PCA + GSFA"
    assert method["delta"]["test"][0] < 0.08  # of s1: 0.04
