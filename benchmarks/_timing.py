"""Timing that survives a busy machine: competitors take turns, the best of several rounds counts.

Ratios are formed within one run, between tasks that took turns, never between two runs. BLAS and OpenMP are held at a
stated number of threads. Beside the time on the clock stands the processor time of all threads of the process, so that
work on a second core is not hidden.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from threadpoolctl import threadpool_info, threadpool_limits

NOISY = 1.25
"""A run whose median round took so many times the best one was disturbed by something else on the machine."""

Task = Callable[[], Any]
Name = TypeVar("Name")


@dataclass(frozen=True)
class Timing:
    """Seconds of one task, round by round."""

    seconds: tuple[float, ...]
    cpu_seconds: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Median round over best round: 1 on an idle machine."""
        return statistics.median(self.seconds) / self.best

    def over(self, base: Timing) -> float:
        """Best time in units of another task's best time."""
        return self.best / base.best

    def cpu_over(self, base: Timing) -> float:
        return min(self.cpu_seconds) / min(base.cpu_seconds)


def take_turns(tasks: Mapping[Name, Task], rounds: int, threads: int = 1) -> dict[Name, Timing]:
    """Run every task once a round, for so many rounds after one to warm up."""
    names = list(tasks)
    wall: dict[Name, list[float]] = {name: [] for name in names}
    cpu: dict[Name, list[float]] = {name: [] for name in names}
    with threadpool_limits(threads):
        for turn in range(-1, rounds):
            # Starting each round with another task, so that nobody always follows the same neighbour.
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                gc.collect()
                gc.disable()
                start, cpu_start = time.perf_counter(), time.process_time()
                tasks[name]()
                stop, cpu_stop = time.perf_counter(), time.process_time()
                gc.enable()
                if turn >= 0:
                    wall[name].append(stop - start)
                    cpu[name].append(cpu_stop - cpu_start)
    return {name: Timing(tuple(wall[name]), tuple(cpu[name])) for name in names}


def peak_memory(task: Task) -> tuple[int, Any]:
    """Most bytes that a task held at once beyond what was there before (Python and numpy; no BLAS buffers, no pages
    of memory-mapped files), and its result."""
    gc.collect()
    tracemalloc.start()
    try:
        result = task()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


def compare(
    tasks: Mapping[str, Task], base: str, rounds: int, threads: int = 1, dtype: str = ""
) -> list[dict[str, Any]]:
    """One row for each task: time in units of the base's, processor time likewise, and peak memory (one more run).

    A task that runs elsewhere brings its own `peak_bytes`; its processor time is not known here.
    """
    timings = take_turns(tasks, rounds, threads)
    rows = []
    for name, task in tasks.items():
        timing, elsewhere = timings[name], getattr(task, "peak_bytes", None)
        with threadpool_limits(threads):
            peak = peak_memory(task)[0] if elsewhere is None else elsewhere()
        rows.append(
            {
                "name": name,
                "dtype": dtype,
                "ms": 1e3 * timing.best,
                "ratio": timing.over(timings[base]),
                "cpu_ratio": timing.cpu_over(timings[base]) if elsewhere is None else None,
                "spread": timing.spread,
                "peak_mib": peak / 2**20,
            }
        )
    return rows


def environment(packages: tuple[str, ...], threads: int) -> dict[str, Any]:
    """Machine, versions and load: what a reader needs to judge the numbers."""
    blas = sorted(
        {f"{pool['internal_api']} {pool['version']}" for pool in threadpool_info() if pool["user_api"] == "blas"}
    )
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "blas": blas,
        "threads_of_blas_and_openmp": threads,
        "load_average_at_start": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": {name: _version(name) for name in packages},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table, numbers to the right."""
    widths = [max(len(line[column]) for line in [header, *rows]) for column in range(len(header))]
    print(f"\n{title}\n")
    for line in [header, ["-" * (width - 1) + (":" if i else "-") for i, width in enumerate(widths)], *rows]:
        cells = [
            text.rjust(width) if i else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("| " + " | ".join(cells) + " |")


def write_json(path: Path, content: Any) -> None:
    """Write results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, default=_plain) + "\n")
    print(f"\nWritten: {path}")


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)


def rounded(value: Any, digits: int = 4) -> Any:
    """Numbers of a nested result, cut to the digits that mean something."""
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    return value
