"""Files are written whole or not at all, and pipes are not waited for."""

import os

import numpy as np
import pytest

from higsfa import HGSFA, Layer, sources
from higsfa.io import open_regular, read_regular, replacing, write_atomically
from higsfa.training.checkpoints import CheckpointError


def test_a_file_that_fails_on_the_way_leaves_the_old_one_and_nothing_else(tmp_path):
    target = tmp_path / "page.html"
    write_atomically(target, b"old")

    def fail():
        with replacing(target) as file:
            file.write(b"half of the new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_bytes() == b"old"
    with replacing(target) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_errors_name_the_file_that_was_asked_for(tmp_path, monkeypatch, step):
    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space") as caught:
        write_atomically(tmp_path / "model", b"x")
    assert caught.value.filename == str(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_atomically(tmp_path / "nowhere" / "model", b"x")


def test_only_regular_files_up_to_a_size_are_read(tmp_path, alarm):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "link to pipe").symlink_to("pipe")
    assert read_regular(tmp_path / "file", 5) == read_regular(tmp_path / "link", 5) == b"12345"
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        read_regular(tmp_path / "file", 4)
    for name in ("pipe", "link to pipe"):
        with pytest.raises(ValueError, match=rf"{name} is not a regular file"):
            open_regular(tmp_path / name)
    with pytest.raises(ValueError, match="not a regular file"):
        open_regular("/dev/zero")
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


@pytest.mark.parametrize("name", ["manifest.json", "layer1.safetensors"])
def test_a_pipe_in_a_checkpoint_is_refused(tmp_path, alarm, name):
    X = np.random.default_rng(0).standard_normal((40, 4))
    network = HGSFA([Layer(2, n_components=2), Layer(2, n_components=2)], input_shape=(4,), graph="serial")
    network.fit(X, X[:, 0], checkpoint=tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(CheckpointError, match="not a regular file"):
        network.fit(X, X[:, 0], checkpoint=tmp_path)


def test_a_pipe_beside_a_cache_makes_it_written_anew(tmp_path, alarm):
    X = np.arange(12.0).reshape(3, 4)
    sources.cache(X, tmp_path / "a.npy")
    (tmp_path / "a.npy.json").unlink()
    os.mkfifo(tmp_path / "a.npy.json")
    with pytest.raises(ValueError, match="unreadable"):
        sources.cache(X, tmp_path / "a.npy")
    np.testing.assert_array_equal(np.asarray(sources.cache(X, tmp_path / "a.npy", rebuild=True)), X)
