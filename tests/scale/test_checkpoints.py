"""An interrupted fit goes on from its checkpoint and ends in the same bits."""

import errno
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest

import higsfa.training.checkpoints as checkpoints
from higsfa import HiGSFA, Layer
from higsfa.training.checkpoints import CheckpointError

SCRIPT = pathlib.Path(__file__).with_name("fit_small.py")
KILLS = int(os.environ.get("HIGSFA_KILLS", "5"))


def run(*arguments, seconds=None):
    """Run the small fit; kill -9 after some seconds. Returns whether it came to its end."""
    process = subprocess.Popen([sys.executable, str(SCRIPT), *map(str, arguments)], stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return False
    assert process.returncode == 0, errors.decode()[-2000:]
    return True


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "images.npy"
    np.save(path, np.random.default_rng(0).integers(0, 256, (2500, 20, 20), dtype=np.uint8))
    return path


@pytest.mark.parametrize(
    ("memory", "spills", "place"),
    [("2 GiB", False, "memory"), ("47 MB", True, "disk"), ("47 MB", False, "nowhere")],
    ids=["kept", "spilled", "streamed"],
)
def test_a_fit_that_was_killed_at_random_moments_ends_in_the_same_bits(data, memory, spills, place, tmp_path):
    spill = tmp_path if spills else "-"
    start = time.monotonic()
    assert run(data, "-", memory, spill, place, tmp_path / "whole.npy")
    whole = time.monotonic() - start
    rng = np.random.default_rng()
    kills, wanted = 0, (KILLS + 2) // 3
    while kills < wanted:
        folder = tmp_path / f"checkpoint{kills}"
        for _ in range(wanted - kills):
            if run(data, folder, memory, spill, place, tmp_path / "out.npy", seconds=rng.uniform(0.3, 0.9) * whole):
                break
            kills += 1
        assert run(data, folder, memory, spill, place, tmp_path / "out.npy")
        assert np.array_equal(np.load(tmp_path / "whole.npy"), np.load(tmp_path / "out.npy"))


def test_a_fit_that_is_interrupted_after_everything_it_writes_ends_in_the_same_bits(tmp_path):
    """Features in memory, on disk and nowhere; on one thread and on two, which once waited for each other."""
    script = SCRIPT.with_name("interrupted_fits.py")
    found = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
    assert int(found.stdout) > 9 * 5  # it was interrupted at least once a layer


@pytest.fixture
def small():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (300, 8, 8), dtype=np.uint8), rng.uniform(0, 1, 300)


def network(**params):
    return HiGSFA([Layer((4, 4), (2, 2), 5), Layer((3, 3), n_components=6, **params)], graph="serial")


@pytest.mark.parametrize("failing_write", range(1, 6))
def test_a_full_disk_interrupts_and_the_fit_goes_on_later(small, failing_write, tmp_path, monkeypatch):
    X, y = small
    whole = network().fit(X, y).transform(X)
    write, count = checkpoints.write_atomically, 0

    def fail_once(path, content):
        nonlocal count
        count += 1
        if count == failing_write:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(checkpoints, "write_atomically", fail_once)
    net = network()
    try:
        net.fit(X, y, checkpoint=tmp_path / "c")
    except OSError:
        assert not hasattr(net, "layers_")
        net.fit(X, y, checkpoint=tmp_path / "c")
    assert np.array_equal(net.transform(X), whole)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda X, y: (X[::-1].copy(), y, {}), "data"),
        (lambda X, y: (X, y + np.arange(len(y)) % 2, {}), "labels"),
        (lambda X, y: (X, y, {"n_slow": 2}), "layer 2"),
        (lambda X, y: (X.astype(np.float64), y, {}), "data|precision"),
    ],
    ids=["data", "labels", "settings", "precision"],
)
def test_a_checkpoint_of_another_fit_is_refused_and_the_difference_named(small, change, named, tmp_path):
    X, y = small
    network().fit(X, y, checkpoint=tmp_path / "c")
    other_X, other_y, params = change(X, y)
    with pytest.raises(CheckpointError, match=named):
        network(**params).fit(other_X, other_y, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("damage", ["truncate", "garbage", "empty"])
def test_a_damaged_checkpoint_is_one_clear_error(small, damage, tmp_path):
    X, y = small
    network().fit(X, y, checkpoint=tmp_path / "c")
    path = tmp_path / "c" / "layer1.safetensors"
    whole = path.read_bytes()
    path.write_bytes({"truncate": whole[:-50], "garbage": b"\x99" * 200, "empty": b""}[damage])
    with pytest.raises(CheckpointError, match=r"layer1\.safetensors cannot be read"):
        network().fit(X, y, checkpoint=tmp_path / "c")


def test_a_finished_checkpoint_gives_the_same_bits_without_training_again(small, tmp_path, monkeypatch):
    X, y = small
    whole = network().fit(X, y, checkpoint=tmp_path / "c").transform(X)
    monkeypatch.setattr("higsfa.training.statistics.solve_node", None)
    assert np.array_equal(network().fit(X, y, checkpoint=tmp_path / "c").transform(X), whole)
