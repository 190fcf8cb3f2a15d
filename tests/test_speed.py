"""Fits stay about as fast, in units of the bare matrix product, as they were when the baseline was measured."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from higsfa.core.kernels import compiled

HERE = Path(__file__).parent
BENCHMARKS = HERE.parent / "benchmarks"
WORSE = 1.5


@pytest.fixture
def guard(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield importlib.import_module("guard")
    for name in ("guard", "nodes", "_data", "_timing"):
        if name not in before:
            sys.modules.pop(name, None)


def slower(measured, baseline):
    """Names of what takes more than half as long again as it did, with both ratios."""
    assert measured.keys() == baseline.keys()
    return {name: (ratio, baseline[name]) for name, ratio in measured.items() if ratio > WORSE * baseline[name]}


@pytest.mark.slow
@pytest.mark.skipif(not compiled(), reason="higsfa was installed without a C compiler; the baseline is with one")
def test_fits_have_not_become_slower_than_the_baseline_allows(guard):
    baseline = json.loads((HERE / "speed_baseline.json").read_text())
    if slower(guard.ratios(), baseline):
        # Once more: something else may have had the machine.
        assert slower(guard.ratios(), baseline) == {}


def test_a_ratio_half_as_large_again_is_reported():
    baseline = {"a": 2.0, "b": 3.0}
    assert slower({"a": 2.9, "b": 4.6}, baseline) == {"b": (4.6, 3.0)}
