"""Runs commands: in this process, as `main` does it, or as a user does, in processes of their own."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

from higsfa.cli import main

SRC = str(Path(__file__).parents[2] / "src")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "HIGSFA_DEBUG"} | {
    "PYTHONPATH": SRC,
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "COLUMNS": "200",
    "TERM": "dumb",
}


def started(*arguments, **kwargs):
    """A command in a process of its own."""
    kwargs["env"] = ENVIRONMENT | kwargs.pop("env", {})
    command = [sys.executable, "-m", "higsfa", *map(os.fspath, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)


def ended(process, expected=0):
    """What a process wrote to stdout and stderr."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == expected, f"exit code {process.returncode}\n{out}\n{err}"
    assert "Traceback" not in err
    return out, err


def higsfa(*arguments, expected=0, cwd=".", traceback=False):
    """Run a command in this process; returns its stdout and stderr."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    argv = ["higsfa", *map(os.fspath, arguments)]
    code = None
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict(os.environ, COLUMNS="200", TERM="dumb"),
    ):
        try:
            main()
        except SystemExit as ending:
            code = ending.code
    shown = []
    for stream in (out, err):
        stream.flush()
        shown.append(stream.buffer.getvalue().decode("utf-8"))
    assert code == expected, f"exit code {code}\n{shown[0]}\n{shown[1]}"
    assert ("Traceback" in shown[1]) == traceback
    return tuple(shown)


def refused(*arguments, code=2, **kwargs):
    """Run a command that must fail; returns its one line on stderr."""
    out, err = higsfa(*arguments, expected=code, **kwargs)
    assert out == ""
    assert err.startswith("higsfa: ")
    assert err.count("\n") == 1, err
    return err
