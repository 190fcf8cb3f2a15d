"""Help, versions, and what a command says when it was called in a wrong way."""

import subprocess
import sys

import pytest

from cli.commands import ENVIRONMENT, SRC, higsfa, refused

COMMANDS = ["demo", "train", "evaluate", "compare", "configs", "info", "transform", "predict", "reconstruct", "morph"]
COMMANDS += ["report", "explore"]


def test_help_names_every_command():
    out, err = higsfa("--help")
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


def test_version():
    from higsfa import __version__

    assert higsfa("--version")[0] == f"higsfa {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["tarin"], "'train'"),
        (["train", "--sise", "3"], "--sise"),
        (["train"], "CONFIG"),
        (["train", "faces"], "--out"),
        (["info", "nowhere"], "nowhere"),
        (["train", "faces", "--out", "x", "--resume", "--force"], "--resume"),
        (["predict", "nowhere", "photo.png", "-o", "estimates.xlsx"], ".csv"),
        (["morph", "nowhere", "photo.png", "--age", "20"], "-o strip.png"),
        (["morph", "nowhere", "photo.png", "--age", "old", "-o", "strip.png"], "old"),
        (["morph", "nowhere", "photo.png", "--age", "20", "--label", "gender=F", "-o", "strip.png"], "one option"),
        (["train", "fases", "--out", "x"], "faces"),
        (["train", "faces", "--out", "x", "--set", "network.n_componets=3"], "n_components"),
        (["train", "faces", "--out", "x", "--set", "network"], "KEY=VALUE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_is_one_line_that_names_the_way_out(arguments, named, tmp_path):
    assert named in refused(*arguments, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_where_an_error_happened(tmp_path):
    for extra, env in ((["--debug"], {}), ([], {"HIGSFA_DEBUG": "1"})):
        process = subprocess.run(
            [sys.executable, "-m", "higsfa", "evaluate", str(tmp_path / "nowhere"), *extra],
            env=ENVIRONMENT | env,
            capture_output=True,
            text=True,
        )
        assert process.returncode == 2
        assert "Traceback" in process.stderr
        assert process.stderr.splitlines()[-1].startswith("higsfa: ")
