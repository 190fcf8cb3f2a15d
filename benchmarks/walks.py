"""The walk of a sample through the source: which modules and functions a fit passes, in the order of first calls.

    python benchmarks/walks.py            the counts
    python benchmarks/walks.py --list     every function, in the order in which it is first called

A graph over serial labels, 3,000 samples, compiled routines, the second call (the first one imports and caches). Other
threads are followed too. A change of module is one between neighbours in that order, so it counts how often a reader
who follows the list has to open another file.
"""

import argparse
import io
import pathlib
import sys
import tempfile
import threading
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise

import numpy as np

import higsfa
from higsfa import GSFA, HiGSFA, Layer

ROOT = pathlib.Path(higsfa.__file__).parent
TRAINING = ("core", "training", "io")


class Walk:
    """Functions of the package in the order of their first calls."""

    def __init__(self):
        self.seen = {}

    def __call__(self, frame, event, argument):
        code = frame.f_code
        if event == "call" and code not in self.seen:
            path = pathlib.Path(code.co_filename)
            # Comprehensions and lambdas belong to the function around them.
            if path.is_relative_to(ROOT) and not code.co_name.startswith("<"):
                self.seen[code] = (str(path.relative_to(ROOT)), code.co_qualname)

    @property
    def functions(self):
        return list(self.seen.values())

    @property
    def modules(self):
        return list(dict.fromkeys(module for module, _ in self.functions))

    @property
    def changes(self):
        modules = [module for module, _ in self.functions]
        return sum(a != b for a, b in pairwise(modules))


def walk(call):
    """The walk of the second call."""
    call()
    walked = Walk()
    threading.setprofile(walked)
    sys.setprofile(walked)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walked


def fit_node():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 8)), rng.normal(size=3000)
    estimator = GSFA(n_components=3, graph="serial", expansion="identity | quadratic")
    return lambda: estimator.fit(X, y)


def fit_network():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 8, 8)), rng.normal(size=3000)
    layers = [Layer((4, 4), (2, 2), n_components=6, pca=8), Layer((3, 3), n_components=4)]
    network = HiGSFA(layers, graph="serial")
    return lambda: network.fit(X, y)


def train(folder):
    """The command, in this process."""
    from typer.testing import CliRunner

    from higsfa.cli import app

    changes = ["data.n_train=400", "data.n_test=200"]
    arguments = ["train", "toy", "--out", str(folder / "run"), "--force", "--jobs", "1"]
    arguments += [part for change in changes for part in ("--set", change)]

    def call():
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            result = CliRunner().invoke(app, arguments)
        if result.exit_code:
            sys.exit(f"higsfa {' '.join(arguments)}: {result.output}\n{result.exception!r}")

    return call


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", choices=["gsfa", "higsfa", "train"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        calls = {"gsfa": fit_node(), "higsfa": fit_network(), "train": train(pathlib.Path(folder))}
        for name, call in calls.items():
            if options.only not in (None, name):
                continue
            walked = walk(call)
            above = [module for module in walked.modules if not module.startswith(TRAINING)]
            print(
                f"{name:7} {len(walked.modules):3} modules ({len(above)} above training), "
                f"{len(walked.functions):3} functions, {walked.changes:3} changes of module"
            )
            if options.list:
                for module, function in walked.functions:
                    print(f"    {module:40} {function}")


if __name__ == "__main__":
    main()
