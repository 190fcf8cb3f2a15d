"""Runs commands as a user does, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

SRC = str(Path(__file__).parents[2] / "src")
CONFIG = """
title = "Small faces"

[data]
kind = "faces"
n_train = 240
n_test = 60
size = 24

[network]
n_components = 12
n_jobs = 1

[head]
n_features = 4

[comparison]
methods = ["pca", "chance"]
"""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "HIGSFA_DEBUG"} | {
    "PYTHONPATH": SRC,
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "COLUMNS": "200",
    "TERM": "dumb",
}


def start(*arguments, **kwargs):
    kwargs["env"] = ENVIRONMENT | kwargs.pop("env", {})
    command = [sys.executable, "-m", "higsfa", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)


def higsfa(*arguments, expected=0, **kwargs):
    """Run a command to its end; returns its stdout and stderr."""
    process = start(*arguments, **kwargs)
    out, err = process.communicate(timeout=120)
    assert process.returncode == expected, f"exit code {process.returncode}\n{out}\n{err}"
    assert "Traceback" not in err
    return out, err


def refused(*arguments, code=2, **kwargs):
    """Run a command that must fail; returns its one line on stderr."""
    out, err = higsfa(*arguments, expected=code, **kwargs)
    assert out == ""
    assert err.startswith("higsfa: ")
    assert err.count("\n") == 1, err
    return err
