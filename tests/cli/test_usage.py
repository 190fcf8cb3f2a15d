"""Help, versions, and what a command says when it was called in a wrong way."""

import os
import signal
import subprocess
import sys

import pytest

from cli.commands import ENVIRONMENT, SRC, ended, higsfa, refused, started
from higsfa import __version__
from higsfa.cli import terminal as errors
from higsfa.experiments import ExperimentError

COMMANDS = [
    "demo",
    "train",
    "tune",
    "evaluate",
    "compare",
    "configs",
    "info",
    "transform",
    "predict",
    "reconstruct",
    "morph",
]
COMMANDS += ["report", "explore"]


def test_the_program_names_every_command_in_its_help():
    """`python -m higsfa`, as a user starts it; without arguments it shows its help."""
    out, err = ended(started())
    assert err == ""
    assert all(f" {command} " in out for command in COMMANDS)


def test_the_command_line_needs_no_heavy_library_before_a_command_runs():
    """The package itself is replaced by an empty one, so that only what the command line imports counts."""
    program = f"""
import sys, types
package = types.ModuleType("higsfa")
package.__path__ = [{SRC!r} + "/higsfa"]
sys.modules["higsfa"] = package
import higsfa.cli
print(sorted({{"numpy", "scipy", "sklearn", "pydantic", "matplotlib", "PIL", "dask"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command):
    out, err = higsfa(command, "--help")
    assert err == ""
    assert f"higsfa {command}" in out.partition("Example")[2]
    assert higsfa(command, "-h")[0] == out


def test_version():
    assert higsfa("--version") == (f"higsfa {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["tarin"], "'train'"),
        (["train", "--sise", "3"], "--sise"),
        (["train"], "CONFIG"),
        (["train", "faces"], "--out"),
        (["info", "nowhere"], "nowhere"),
        (["train", "faces", "--out", "x", "--resume", "--force"], "--resume"),
        (["train", "faces", "--out", "x", "--data", "nowhere"], "nowhere"),
        (["train", "faces", "--out", "x", "--data", "/"], "not read from a folder"),
        (["predict", "nowhere", "photo.png", "-o", "estimates.xlsx"], ".csv"),
        (["predict", "nowhere", "photo.png"], "run folder nowhere"),
        (["reconstruct", "nowhere", "photo.png", "-o", "p.jpg"], ".png"),
        (["morph", "nowhere", "photo.png"], "--age 20,40,60"),
        (["morph", "nowhere", "photo.png", "--age", "old", "-o", "strip.png"], "old"),
        (["morph", "nowhere", "photo.png", "--age", "20,inf", "-o", "strip.png"], "inf"),
        (["morph", "nowhere", "photo.png", "--age", ",", "-o", "strip.png"], "NAME=VALUE,VALUE"),
        (["morph", "nowhere", "photo.png", "--label", "=1", "-o", "strip.png"], "NAME=VALUE,VALUE"),
        (["morph", "nowhere", "photo.png", "--label", "age", "-o", "strip.png"], "NAME=VALUE,VALUE"),
        (["morph", "nowhere", "photo.png", "--age", ",".join(["20"] * 65), "-o", "strip.png"], "at most 64"),
        (["morph", "nowhere", "photo.png", "--age", "20", "--gif", "a.png"], ".gif or .webp"),
        (["morph", "nowhere", "photo.png", "--age", "20", "--label", "gender=F", "-o", "strip.png"], "one option"),
        (["morph", "nowhere", "photo.png", "--age", ",".join(["20"] * 64), "-o", "strip.png"], "run folder nowhere"),
        (["train", "fases", "--out", "x"], "faces"),
        (["train", "faces", "--out", "x", "--set", "network.n_componets=3"], "n_components"),
        (["train", "faces", "--out", "x", "--set", "network"], "KEY=VALUE"),
        (["train", "faces", "--out", "x", "--set", "=3"], "KEY=VALUE"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_wrong_usage_is_one_line_that_names_the_way_out(arguments, named, tmp_path):
    assert named in refused(*arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_where_an_error_happened(tmp_path, monkeypatch):
    nowhere = tmp_path / "nowhere"
    for before, after in ((["--debug"], []), ([], ["--debug"])):
        _, err = higsfa(*before, "evaluate", nowhere, *after, expected=2, traceback=True)
        assert err.splitlines()[-1].startswith("higsfa: ")
    monkeypatch.setenv("HIGSFA_DEBUG", "1")
    higsfa("evaluate", nowhere, expected=2, traceback=True)
    monkeypatch.setenv("HIGSFA_DEBUG", "0")
    higsfa("evaluate", nowhere, expected=2)


# ---------------------------------------------------------------------- errors and their endings


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (errors.WrongUsage("give\none"), "give one", 2),
        (ValueError("bad \x1b value"), "bad ? value", 1),
        (ValueError(), "ValueError", 1),
        (ExperimentError("no data"), "no data", 2),
        (OSError(28, "No space left on device"), "the disk is full", 1),
        (caused(ExperimentError("x"), OSError(27, "File too large")), "the disk is full", 1),
        (OSError(13, "Permission denied", "/a"), "/a: Permission denied", 1),
        (MemoryError("7 GiB"), "not enough memory (7 GiB)", 1),
        (KeyError("x"), "internal error, KeyError: 'x'; --debug", 1),
        (errors.Stopped(signal.SIGINT), "interrupted; nothing was left half written", 130),
        (errors.Stopped(signal.SIGTERM), "ended by a signal; nothing", 143),
    ],
)
def test_errors_become_one_line_and_an_exit_code(error, line, code):
    shown, found = errors.explain(error, ["predict", "run"])
    assert shown.startswith(line)
    assert found == code


def test_an_interrupted_training_says_how_to_go_on():
    line, code = errors.explain(errors.Stopped(signal.SIGINT), ["train", "my file.toml", "--out", "x", "--force"])
    assert line.endswith("Continue with: higsfa train 'my file.toml' --out x --resume")
    assert code == 130


def test_signals_unwind_the_stack_and_the_second_one_ends_at_once():
    before = signal.getsignal(signal.SIGTERM)

    def stopped():
        with errors.signals_as_exceptions():
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(errors.Stopped) as caught:
        stopped()
    assert caught.value.args == (signal.SIGTERM,)
    assert signal.getsignal(signal.SIGTERM) == before
    with errors.signals_as_exceptions():
        handler = signal.getsignal(signal.SIGINT)
        with pytest.raises(errors.Stopped):
            handler(signal.SIGINT, None)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
