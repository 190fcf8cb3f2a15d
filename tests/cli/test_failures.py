"""What a command does when files are missing, broken or in the way, and when the disk is full."""

import json
import os
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from cli.commands import ENVIRONMENT, higsfa, refused
from higsfa.experiments import Run
from higsfa.report import page

QUICK = ("--set", "data.max_samples=120")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("[network]\nn_componets = 3", "n_components"),
        ("[data", "TOML"),
        ("[data]\nkind = 'utkface'\nfolder = '/nowhere'", "nowhere"),
    ],
    ids=["unknown key", "not TOML", "no such folder"],
)
def test_a_config_with_a_mistake_is_one_line_and_leaves_no_folder(line, named, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(f"title = 'Bad'\n{line}\n" + ("" if "[data" in line else "[data]\nkind = 'faces'\n"))
    _, err = higsfa("train", path, "--out", tmp_path / "run", expected=2)
    assert named in err.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_the_corrected_command_trains_where_the_wrong_one_failed(quickly, real, tmp_path):
    wrong = (quickly, "--out", tmp_path / "run", "--set", "data.csv=/nowhere.csv", *QUICK)
    higsfa("train", *wrong, expected=2)
    higsfa("train", quickly, "--out", tmp_path / "run", *QUICK)
    before = (tmp_path / "run" / "metrics.json").read_bytes()
    (tmp_path / "run" / "report.html").write_text("a page")
    higsfa("train", *wrong, "--force", expected=2)
    assert (tmp_path / "run" / "metrics.json").read_bytes() == before
    assert (tmp_path / "run" / "report.html").exists()
    higsfa("train", quickly, "--out", tmp_path / "run", "--data", real.config.parent, *QUICK, "--force")
    assert not (tmp_path / "run" / "report.html").exists()


def test_pictures_that_are_not_there_or_broken(run, photos, tmp_path):
    empty, broken = tmp_path / "empty", tmp_path / "broken"
    empty.mkdir()
    broken.mkdir()
    shutil.copy(photos / "face0.png", broken / "a.png")
    (broken / "b.png").write_bytes((photos / "face1.png").read_bytes()[:100])
    target = tmp_path / "features.npy"
    assert "nowhere" in refused("transform", run, tmp_path / "nowhere", "-o", target)
    assert "empty" in refused("transform", run, empty, "-o", target)
    assert "b.png" in refused("transform", run, broken, "-o", target, code=1)
    assert "b.png" in refused("transform", run, broken / "b.png", "-o", target, code=1)
    assert not target.exists()
    assert "holds 3 pictures" in refused("morph", run, photos, "--age", "20", "-o", tmp_path / "s.png")


def test_a_broken_model_is_one_line(run, photos, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    whole = (copy / "model.higsfa").read_bytes()
    (copy / "model.higsfa").write_bytes(whole[: len(whole) // 2])
    assert "model" in refused("predict", copy, photos, code=1)
    assert "not a model" in refused("info", copy / "model.higsfa")


def test_tampered_metrics_are_one_line(run, photos, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    metrics = json.loads((run / "metrics.json").read_text())
    for change in ({"labels": [{}]}, {"methods": {}}, {"data": None}, {"labels": [{"name": "age", "kind": 1}]}):
        (copy / "metrics.json").write_text(json.dumps(metrics | change))
        for command in (["compare", copy, run], ["info", copy], ["predict", copy, photos], ["report", copy]):
            assert next(iter(change)) in refused(*command)
    metrics["methods"][0]["labels"]["age"] = None
    del metrics["methods"][1]["labels"], metrics["created"], metrics["n_folds"]
    (copy / "metrics.json").write_text(json.dumps(metrics))
    assert "run, HGSFA" in higsfa("compare", copy, run)[0]
    assert "HGSFA" in higsfa("info", copy)[0]


def test_runs_with_other_labels_are_not_compared(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    text = (copy / "metrics.json").read_text("utf-8")
    (copy / "metrics.json").write_text(text.replace('"categorical"', '"numeric"'), encoding="utf-8")
    assert "'gender' is categorical in one run" in refused("compare", run, copy)


@pytest.mark.parametrize(("name", "code"), [("model.higsfa", 1), ("metrics.json", 2), ("config.toml", 2)])
def test_a_pipe_in_a_run_is_one_line(run, photos, tmp_path, name, code, alarm):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / name).unlink()
    os.mkfifo(tmp_path / "run" / name)
    refused("reconstruct", tmp_path / "run", photos, "-o", tmp_path / "p.png", code=code)


def test_morph_names_the_labels_that_there_are(run, photos, tmp_path):
    target = tmp_path / "strip.png"
    for arguments, named in (
        (["--label", "height=1,2"], "age, gender, race"),
        (["--label", "gender=X"], "F, M"),
        (["--label", "age=F"], "'F' is not a number"),
    ):
        assert named in refused("morph", run, photos / "face0.png", *arguments, "-o", target)
    assert not target.exists()


def test_eyes_are_asked_for_where_faces_were_aligned_by_them(run, photos, tmp_path):
    table = tmp_path / "eyes.csv"
    table.write_text("face0,2,3,8,3\n")
    target = ("-o", tmp_path / "e.csv")
    assert "leave out eyes" in refused("predict", run, photos / "face0.png", "--eyes", table, *target)
    assert "table" in refused("predict", run, photos / "face0.png", "--eyes", tmp_path / "none.csv", *target)
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    text = (copy / "metrics.json").read_text("utf-8")
    (copy / "metrics.json").write_text(text.replace('"cropping": "centre"', '"cropping": "eyes"'), encoding="utf-8")
    assert "--eyes" in refused("predict", copy, photos / "face0.png", *target)
    for number, how in enumerate((["--eyes", table], ["--cropped"])):
        higsfa("transform", copy, photos / "face0.png", *how, "-o", tmp_path / f"{number}.npy")
        higsfa("predict", copy, photos / "face0.png", *how)
        higsfa("reconstruct", copy, photos / "face0.png", *how, "-o", tmp_path / f"{number}.png")
        higsfa("morph", copy, photos / "face0.png", *how, "--age", "20", "-o", tmp_path / f"m{number}.png")
    expected = Run(run).network.transform(np.asarray(Image.open(photos / "face0.png"))[None])
    np.testing.assert_allclose(np.load(tmp_path / "1.npy"), expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(np.load(tmp_path / "0.npy"), expected, rtol=0.1)


def test_nothing_is_overwritten_without_force(run, photos, quickly, tmp_path):
    target = tmp_path / "out.npy"
    target.write_text("precious")
    assert "--force" in refused("transform", run, photos, "-o", target)
    assert target.read_text() == "precious"
    higsfa("transform", run, photos, "-o", target, "--force")
    assert target.read_bytes()[:6] == b"\x93NUMPY"
    before = (run / "metrics.json").read_bytes()
    assert "--resume" in refused("train", quickly, "--out", run)
    assert "is a file" in refused("train", quickly, "--out", target)
    assert (run / "metrics.json").read_bytes() == before
    (tmp_path / "folder.npy").mkdir()
    assert "is a folder" in refused("transform", run, photos, "-o", tmp_path / "folder.npy", "--force")
    assert "does not exist" in refused("transform", run, photos, "-o", tmp_path / "none" / "f.npy")


def test_force_replaces_runs_but_not_other_folders(quickly, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    assert "not empty" in refused("train", quickly, "--out", tmp_path, "--force")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("command", ["report", "explore", "reconstruct", "morph", "transform", "predict"])
def test_a_file_that_cannot_be_finished_leaves_the_old_one(run, photos, tmp_path, monkeypatch, command):
    ending = {"report": "html", "explore": "html", "transform": "npy", "predict": "csv"}.get(command, "png")
    target = tmp_path / f"out.{ending}"
    target.write_text("old")
    given = [] if command in ("report", "explore") else [photos / "face0.png"]
    given += ["--age", "20"] if command == "morph" else []

    def fail(handle):
        raise OSError(28, "No space left on device")

    higsfa("reconstruct", run, photos, "-o", tmp_path / "first.png")  # so that the decoder is there
    (tmp_path / "first.png").unlink()
    monkeypatch.setattr(page, "sections", lambda run: [])  # so that it is quick
    monkeypatch.setattr("os.fsync", fail)
    _, err = higsfa(command, run, *given, "-o", target, "--force", expected=1)
    assert err.splitlines()[-1].startswith("higsfa: the disk is full")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
    assert not list(run.glob(".*"))


def test_a_full_disk_during_training_can_be_mended_and_resumed(quickly, tmp_path):
    """As on a full disk, no file can grow beyond 20 kB."""
    folder, before = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        out, err = higsfa("train", quickly, "--out", folder, expected=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert out == ""
    assert "full" in err.splitlines()[-1]
    higsfa("train", quickly, "--out", folder, "--resume")
    higsfa("train", quickly, "--out", tmp_path / "whole")
    assert (folder / "model.higsfa").read_bytes() == (tmp_path / "whole" / "model.higsfa").read_bytes()


def test_a_disk_that_is_really_full(quickly, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk is not permitted here")
    script = 'mount -t tmpfs -o size=64k none "$1" && shift && exec "$@"'
    command = [sys.executable, "-m", "higsfa", "train", str(quickly), "--out", str(disk / "run")]
    process = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", str(disk), *command],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1, process.stderr
    assert "full" in process.stderr.splitlines()[-1]
    assert "Traceback" not in process.stderr


def test_names_of_files_cannot_write_to_the_terminal(run, tmp_path):
    evil = tmp_path / "a\x1b[31m[red]b.png"
    Image.new("L", (30, 30), 128).save(evil)
    out, _ = higsfa("predict", run, evil)
    assert "\x1b" not in out
    assert "[red]b.png" in out
