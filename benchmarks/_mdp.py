"""MDP 3.6 beside us: its own interpreter, its own numpy, fed through a pipe so that both can take turns."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE / ".mdpenv"
PACKAGES = ("numpy==1.23.5", "scipy==1.10.1", "MDP==3.6")


class MdpProcess:
    """A process that trains MDP's nodes when asked to; BLAS at one thread."""

    def __init__(self, python: str, folder: Path) -> None:
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        without_ours = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [python, str(HERE / "mdp_nodes.py"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=without_ours | one,
        )
        self.versions = self._read()

    def __enter__(self) -> MdpProcess:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def ask(self, task: str, **wish: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps({"task": task, **wish}), file=self._process.stdin, flush=True)
        return self._read()

    def task(self, name: str) -> MdpTask:
        return MdpTask(self, name)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process with MDP ended; run benchmarks/mdp_nodes.py by hand to see why")
        reply: dict[str, Any] = json.loads(line)
        return reply


class MdpTask:
    """Training of one node in the other process."""

    def __init__(self, process: MdpProcess, name: str) -> None:
        self._process, self._name = process, name

    def __call__(self) -> None:
        self._process.ask(self._name)

    def peak_bytes(self) -> int:
        return int(self._process.ask(self._name, peak=True)["peak_bytes"])

    def features(self, rows: int) -> list[list[float]]:
        return list(self._process.ask(self._name, features=rows)["features"])


def mdp_python(given: str | None) -> tuple[str | None, str]:
    """An interpreter that has MDP: the one given, $HIGSFA_MDP_PYTHON, or a new environment; and what was wrong."""
    named = given or os.environ.get("HIGSFA_MDP_PYTHON")
    if named:
        return (named, "") if _has_mdp(named) else (None, f"{named} cannot import mdp")
    own = str(ENVIRONMENT / "bin" / "python")
    if _has_mdp(own):
        return own, ""
    base = sys.executable if sys.version_info[:2] == (3, 11) else shutil.which("python3.11")
    if base is None:
        return None, "MDP 3.6 needs numpy 1.23 and so Python 3.11, which was not found; name one by --mdp-python"
    print(f"Making an environment for MDP in {ENVIRONMENT} ...", flush=True)
    try:
        _run([base, "-m", "venv", str(ENVIRONMENT)])
        _run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES])
    except (OSError, subprocess.SubprocessError):
        return None, "it could not be installed; is PyPI reachable?"
    return (own, "") if _has_mdp(own) else (None, "the environment made for it cannot import it")


def _run(command: list[str]) -> None:
    subprocess.run(command, capture_output=True, timeout=600, check=True)


def _has_mdp(python: str) -> bool:
    try:
        return (
            subprocess.run([python, "-W", "ignore", "-c", "import mdp"], capture_output=True, check=False).returncode
            == 0
        )
    except OSError:
        return False
