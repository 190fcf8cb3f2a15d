"""A few fits against the bare product, quickly: what tests/test_speed.py watches.

    python benchmarks/guard.py            print the ratios
    python benchmarks/guard.py --write    make them the new baseline, tests/speed_baseline.json

Ratios are of processor time, all threads together: it hardly depends on what else the machine is doing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from _data import labelled
from _timing import Task, take_turns, write_json
from nodes import Samples, node_tasks

from higsfa import GSFA, presets

BASELINE = Path(__file__).resolve().parent.parent / "tests" / "speed_baseline.json"
ROUNDS = 15


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
    measured = {name: round(ratio, 2) for name, ratio in ratios().items()}
    for name, ratio in measured.items():
        print(f"{name:28s}{ratio:6.2f}")
    if options.write:
        write_json(BASELINE, measured)


if __name__ == "__main__":
    main()
