"""What a command does when files are missing, broken or in the way, and when the disk is full."""

import resource
import shutil
import subprocess
import sys

import pytest
from PIL import Image

from cli.commands import CONFIG, ENVIRONMENT, higsfa, refused


def limited_files():
    """As on a full disk, no file can grow beyond 20 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("[network]\nn_componets = 3", "n_components"),
        ("[data", "TOML"),
    ],
    ids=["unknown key", "not TOML"],
)
def test_a_config_with_a_mistake_is_one_line(line, named, tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(f"title = 'Bad'\n{line}\n" + ("" if "[data" in line else "[data]\nkind = 'faces'\n"))
    assert named in refused("train", path, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_pictures_that_are_not_there_or_broken(run, photos, tmp_path):
    empty, broken = tmp_path / "empty", tmp_path / "broken"
    empty.mkdir()
    broken.mkdir()
    shutil.copy(photos / "face0.png", broken / "a.png")
    (broken / "b.png").write_bytes((photos / "face1.png").read_bytes()[:300])
    target = tmp_path / "features.npy"
    assert "nowhere" in refused("transform", run, tmp_path / "nowhere", "-o", target)
    assert "empty" in refused("transform", run, empty, "-o", target)
    assert "b.png" in refused("transform", run, broken, "-o", target, code=1)
    assert not target.exists()


def test_a_broken_model_is_one_line(run, photos, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    whole = (copy / "model.higsfa").read_bytes()
    (copy / "model.higsfa").write_bytes(whole[: len(whole) // 2])
    assert "model" in refused("predict", copy, photos, code=1)
    assert "not a model" in refused("info", copy / "model.higsfa")


def test_morph_names_the_labels_that_there_are(run, photos, tmp_path):
    target = tmp_path / "strip.png"
    for arguments, named in (
        (["--label", "height=1,2"], "age, gender, race"),
        (["--label", "gender=X"], "F, M"),
    ):
        assert named in refused("morph", run, photos / "face0.png", *arguments, "-o", target)
    assert not target.exists()


def test_nothing_is_overwritten_without_force(run, photos, config, tmp_path):
    target = tmp_path / "out.npy"
    target.write_text("precious")
    assert "--force" in refused("transform", run, photos, "-o", target)
    assert target.read_text() == "precious"
    higsfa("transform", run, photos, "-o", target, "--force")
    assert target.read_bytes()[:6] == b"\x93NUMPY"
    before = (run / "metrics.json").read_bytes()
    assert "--force" in refused("train", config, "--out", run)
    assert (run / "metrics.json").read_bytes() == before


def test_force_replaces_runs_but_not_other_folders(config, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    small = ("--set", "data.n_train=100", "--set", 'comparison.methods=["chance"]')
    refused("train", config, "--out", tmp_path, "--force", *small, code=1)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_a_full_disk_is_one_line_and_leaves_no_half_file(run, photos, tmp_path):
    target = tmp_path / "strip.png"
    out, err = higsfa("reconstruct", run, photos, "-o", target, expected=1, preexec_fn=limited_files)
    assert out == ""
    assert err.splitlines()[-1].startswith("higsfa: the disk is full")
    assert list(tmp_path.iterdir()) == []
    assert not list(run.glob(".*"))


def test_a_full_disk_during_training_can_be_mended_and_resumed(run, config, tmp_path):
    folder = tmp_path / "run"
    process = subprocess.run(
        [sys.executable, "-m", "higsfa", "train", config, "--out", folder],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        preexec_fn=limited_files,
    )
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].startswith("higsfa: ")
    assert "full" in process.stderr
    assert "Traceback" not in process.stderr
    higsfa("train", config, "--out", folder, "--resume")
    assert (folder / "model.higsfa").read_bytes() == (run / "model.higsfa").read_bytes()


def test_a_disk_that_is_really_full(photos, config, run, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["unshare", "--mount", "mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk is not permitted here")
    script = 'mount -t tmpfs -o size=64k none "$1" && shift && exec "$@"'
    command = [sys.executable, "-m", "higsfa", "train", str(config), "--out", str(disk / "run")]
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


def test_a_config_that_is_fine_is_fine(tmp_path):
    """The mistakes above are found, and not something else in the same text."""
    from higsfa.experiments import load_config

    path = tmp_path / "good.toml"
    path.write_text(CONFIG)
    assert load_config(path).title == "Small faces"
