"""Training that is interrupted says how to go on, and goes on to the same model."""

import signal
import time

from cli.commands import higsfa, start

SLOWER = ("--set", "data.n_train=400", "--set", "data.size=40", "--set", 'comparison.methods=["chance"]')


def interrupt(arguments, folder, layer, number):
    """Send a signal when a layer is finished; returns the exit code and the last line on stderr."""
    process = start("train", *arguments)
    deadline = time.monotonic() + 60
    while not list(folder.glob(f"checkpoint/**/layer{layer}.safetensors")) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert out == ""
    assert "Traceback" not in err
    assert not (folder / "model.higsfa").exists()
    return process.returncode, err.splitlines()[-1]


def test_a_run_that_is_interrupted_twice_ends_in_the_same_model(config, tmp_path):
    folder, whole = tmp_path / "run", tmp_path / "whole"
    arguments = (config, "--out", folder, *SLOWER)
    code, line = interrupt(arguments, folder, 1, signal.SIGINT)
    assert code == 130
    assert line.endswith("--resume")
    code, line = interrupt((*arguments, "--resume"), folder, 3, signal.SIGTERM)
    assert code == 143
    assert line.endswith("--resume")
    assert line.count("--resume") == 1
    higsfa("train", *arguments, "--resume")
    higsfa("train", config, "--out", whole, *SLOWER)
    for name in ("model.higsfa", "head.higsfa", "predictions.csv"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
