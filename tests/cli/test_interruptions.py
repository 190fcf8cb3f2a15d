"""Training and searching say how to go on when they are interrupted, and go on to the same model."""

import signal

from cli.commands import higsfa, started

SLOWER = ("--set", "distortion={copies=30, supervised_copies=30}")


def interrupt(arguments, moment, number, command="train"):
    """Send a signal when a stage begins; returns the last line on stderr."""
    process = started(command, *arguments)
    seen = ""
    while moment not in seen:
        line = process.stderr.readline()
        assert line, f"it ended with {process.wait()} before {moment!r}:\n{seen}"
        seen += line
    process.send_signal(number)
    rest, out = process.stderr.read(), process.stdout.read()
    process.stderr.close()
    process.stdout.close()
    assert process.wait() == 128 + number, seen + rest
    assert out == ""
    assert "Traceback" not in rest
    return rest.splitlines()[-1]


def test_a_run_that_is_interrupted_twice_ends_in_the_same_model(quickly, tmp_path):
    folder, whole = tmp_path / "run", tmp_path / "whole"
    arguments = (quickly, "--out", folder, *SLOWER)
    assert interrupt(arguments, "train on 9,000 samples", signal.SIGINT).endswith("--resume")
    line = interrupt((*arguments, "--resume"), "features of 9,000", signal.SIGTERM)
    assert line.endswith("--resume")
    assert line.count("--resume") == 1
    assert not (folder / "model.higsfa").exists()
    higsfa("train", *arguments, "--resume")
    higsfa("train", quickly, "--out", whole, *SLOWER)
    for name in ("model.higsfa", "head.higsfa", "predictions.csv"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()


def test_a_search_that_is_interrupted_ends_in_the_same_config(quickly, tmp_path):
    folder, whole = tmp_path / "tuned", tmp_path / "whole"
    options = ("--only", "width", "--candidates", "3", "--jobs", "1")
    line = interrupt((quickly, "--out", folder, *options), "candidate 2 of 3", signal.SIGINT, "tune")
    assert line.endswith("--resume")
    higsfa("tune", quickly, "--out", folder, *options, "--resume")
    higsfa("tune", quickly, "--out", whole, *options)
    assert (folder / "best.toml").read_bytes() == (whole / "best.toml").read_bytes()
