"""Which compiled library is used, and a package that works without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from higsfa.core.native import library as kernels

needs_compiled = pytest.mark.skipif(not kernels.compiled(), reason="higsfa was installed without a C compiler")


def test_the_package_works_without_the_compiled_loops():
    program = """
import numpy as np
from higsfa import HiGSFA, Layer
from higsfa.core.native import library as kernels
rng = np.random.default_rng(0)
y = rng.uniform(0, 1, 600)
X = (100 + 40 * np.sin(3 * y[:, None] + np.arange(64)) + 10 * rng.standard_normal((600, 64))).astype(np.uint8)
layers = [Layer((4, 4), (4, 4), 5, pca=8, n_slow=2, expansion="identity | power0.8 | quadratic[:3]"), Layer((2, 2))]
network = HiGSFA(layers, graph="serial", input_shape=(8, 8)).fit(X.reshape(-1, 8, 8), y)
print(kernels.compiled(), *network.transform(X.reshape(-1, 8, 8))[:50, 0])
"""
    found = []
    for choice in ("numpy", os.environ.get("HIGSFA_KERNELS", "")):
        environment = os.environ | {"HIGSFA_KERNELS": choice}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True, timeout=300
        )
        used, *numbers = done.stdout.split()
        assert used == str(choice != "numpy" and kernels.compiled())
        found.append(np.array(numbers, dtype=float))
    ours, theirs = found
    np.testing.assert_allclose(ours, theirs, atol=2e-3 * np.abs(ours).max())


@needs_compiled
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_processors_without_wide_registers_compute_the_same_by_blas(tmp_path):
    library, source = tmp_path / "narrow.so", Path(kernels.__file__).with_name("kernels.c")
    flags = ["-O2", "-fPIC", "-shared", "-fopenmp-simd", "-DNARROW", "-DONE_VERSION"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library)], check=True, timeout=300)
    program = """
import numpy as np
from higsfa import GSFA, SFA
from higsfa.graphs import WindowGraph
from higsfa.core.native import library as kernels
assert kernels.compiled()
X = np.random.default_rng(0).standard_normal((700, 50)).cumsum(axis=0)
models = SFA(5).fit(X), GSFA(5, graph=WindowGraph(False)).fit(X)
print(*(value for one in models for value in (*one.delta_values_, *np.abs(one.transform(X[:20])).ravel())))
"""
    found = []
    for choice in (str(library), os.environ.get("HIGSFA_KERNELS", "")):
        environment = os.environ | {"HIGSFA_KERNELS": choice}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True, timeout=300
        )
        found.append(np.array(done.stdout.split(), dtype=float))
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)


@needs_compiled
def test_a_library_of_another_version_is_left_aside(monkeypatch):
    monkeypatch.setattr(kernels, "VERSION", kernels.VERSION + 1)
    with pytest.warns(UserWarning, match="install higsfa again"):
        assert kernels._load_library() == {}


@needs_compiled
def test_another_build_of_the_library_can_be_named(monkeypatch, tmp_path):
    library = Path(kernels.__file__).with_name(kernels.LIBRARY)
    if os.environ.get("HIGSFA_KERNELS"):
        library = Path(os.environ["HIGSFA_KERNELS"])
    copy = tmp_path / "copy.so"
    shutil.copy(library, copy)
    monkeypatch.setenv("HIGSFA_KERNELS", str(copy))
    assert kernels._load_library().keys() == kernels.routines.keys()
    monkeypatch.setenv("HIGSFA_KERNELS", str(tmp_path / "nowhere.so"))
    with pytest.warns(UserWarning, match="nowhere.so"):
        assert kernels._load_library() == {}


def test_a_library_that_is_there_is_used():
    """Otherwise all tests of compiled routines would be skipped, and nobody would notice."""
    chosen = os.environ.get("HIGSFA_KERNELS", "")
    there = Path(chosen).exists() if chosen else Path(kernels.__file__).with_name(kernels.LIBRARY).exists()
    assert kernels.compiled() == (chosen != "numpy" and there)
