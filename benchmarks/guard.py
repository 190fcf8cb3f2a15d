"""Fits stay about as fast, in units of the bare matrix product, as when the baseline was measured.

    python benchmarks/guard.py            compare with benchmarks/speed_baseline.json; fails if something is slower
    python benchmarks/guard.py --write    measure a new baseline

Ratios are of processor time, all threads together: it does not depend much on what else the machine is doing. It does
depend on the processor; a baseline of another one says little.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from _data import labelled
from _timing import Task, take_turns, write_json
from nodes import Samples, node_tasks

from higsfa import GSFA, presets
from higsfa.core.native.library import compiled

BASELINE = Path(__file__).with_name("speed_baseline.json")
ROUNDS = 15
WORSE = 1.5
"""So many times the ratio of the baseline is too much."""


def ratios(rounds: int = ROUNDS) -> dict[str, float]:
    """Processor time of each fit in units of its bare product; BLAS at one thread."""
    X, labels = labelled(40_000, 100)
    fits: dict[str, Task] = {
        "bare": lambda: X.T @ X,
        "GSFA, clustered": lambda: GSFA(graph="clustered").fit(X, labels["digit"]),
        "GSFA, serial": lambda: GSFA(graph="serial").fit(X, labels["age"]),
    }
    second = presets.higsfa_g3()._planned((96, 96))[1]
    node = node_tasks(second, Samples.of(16_384))
    del node["solve"]
    first, then = take_turns(fits, rounds), take_turns(node, rounds)
    return {
        "GSFA, clustered": first["GSFA, clustered"].cpu_over(first["bare"]),
        "GSFA, serial": first["GSFA, serial"].cpu_over(first["bare"]),
        "node of layer 2, sums": then["sums"].cpu_over(then["bare"]),
        "node of layer 2, features": then["features"].cpu_over(then["bare"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make the ratios the new baseline")
    options = parser.parse_args()
    if not compiled():
        sys.exit("higsfa was installed without a C compiler; the baseline is with one")
    if options.write:
        write_json(BASELINE, {name: round(ratio, 2) for name, ratio in ratios().items()})
    baseline = json.loads(BASELINE.read_text())
    for _ in range(2):  # something else may have had the machine
        measured = ratios()
        for name, ratio in measured.items():
            print(f"{name:28s}{ratio:6.2f}   baseline{baseline[name]:6.2f}")
        slower = [name for name, ratio in measured.items() if ratio > WORSE * baseline[name]]
        if not slower:
            return
    sys.exit(f"more than {WORSE} times as slow as the baseline: {', '.join(slower)}")


if __name__ == "__main__":
    main()
