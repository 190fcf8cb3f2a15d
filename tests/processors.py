"""The numerical tests with the code that numpy and scipy run on other processors.

    python tests/processors.py            all tests in NUMERICAL, once for every kind of processor
    python tests/processors.py --quick    those in QUICK
    python tests/processors.py --only Haswell
    python tests/processors.py --emulated    our compiled routines without AVX-512, and without AVX, by qemu-x86_64

OpenBLAS, of which numpy and scipy bring a copy each, has code of its own for every kind of processor, and sums come out
a little different; OPENBLAS_CORETYPE names another kind than the one at hand. numpy's own loops have such variants,
too. A test that is right only to the last bit of one of them fails on somebody else's machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

ROOT = Path(__file__).resolve().parent.parent

QUICK = ["tests/core", "tests/test_shrinkage.py", "tests/test_theory.py"]
NUMERICAL = [
    *QUICK,
    "tests/reconstruction",
    "tests/report/test_explorer.py",
    "tests/test_constant_data.py",
    "tests/test_estimators_oracles.py",
    "tests/test_graphs.py",
    "tests/test_found_by_attack.py",
    "tests/test_label_graphs.py",
    "tests/test_label_head.py",
    "tests/evaluation/test_metrics.py",
    "tests/test_networks.py",
    "tests/test_properties.py",
    "tests/test_streams.py",
    "tests/test_tied_windows.py",
]
"""Folders and files; a test that compares numbers belongs here."""

CORES = {"Prescott": "SSE3", "Nehalem": "SSE42", "Sandybridge": "AVX", "Haswell": "AVX2", "SkylakeX": "AVX512_SKX"}
"""Kinds of processors that OpenBLAS knows, and what the one at hand must have to stand in for them."""
CALLS_ITSELF = {"Prescott": "Katmai"}
"""Where one code serves for two kinds, OpenBLAS says the older name."""

REPORT = """
import json, numpy, scipy.linalg, threadpoolctl
blas = [library.get("architecture", library["internal_api"]) for library in threadpoolctl.threadpool_info()]
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
print(json.dumps([blas, [name for name in __cpu_dispatch__ if __cpu_features__[name]]]))
"""


def kinds() -> dict[str, dict[str, str]]:
    """What is tried: name and environment."""
    found = {core: {"OPENBLAS_CORETYPE": core} for core, needed in CORES.items() if __cpu_features__.get(needed)}
    vector_code = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
    return found | {"numpy without vector code": {"NPY_DISABLE_CPU_FEATURES": " ".join(vector_code)}}


def not_in_force(changes: dict[str, str], environment: dict[str, str]) -> str:
    """Why the tests would show nothing; empty if they would show something."""
    run = subprocess.run([sys.executable, "-c", REPORT], env=environment, capture_output=True, text=True, check=True)
    blas, vector_code = json.loads(run.stdout)
    core = changes.get("OPENBLAS_CORETYPE")
    if core is not None and set(blas) != {CALLS_ITSELF.get(core, core)}:
        return f"the BLAS libraries run code for {', '.join(blas)}, not for {core}: are they OpenBLAS?"
    if core is None and vector_code:
        return f"numpy still uses {', '.join(vector_code)}"
    return ""


EMULATED = {"Nehalem": "default", "Haswell": "arch_x86_64_v3"}
"""Processors that qemu can be, and the version of our routines that the loader must take there: an instruction that the
processor does not have would end the process. AVX-512 is not among what qemu knows."""

CHOSEN = """
import ctypes, sys
from higsfa.core.native import library
assert library.compiled()
symbols = {name: int(place, 16) for place, name in (line.split() for line in open(sys.argv[1]))}
loaded = ctypes.CDLL(sys.argv[2])
base = ctypes.cast(loaded.higsfa_kernels_version, ctypes.c_void_p).value - symbols["higsfa_kernels_version"]
resolve = ctypes.CFUNCTYPE(ctypes.c_void_p)(base + symbols["add_runs_f32.resolver"])
print({base + place: name for name, place in symbols.items() if ".resolver" not in name}[resolve()].partition(".")[2])
"""
FEATURES = """
import sys
import numpy as np
from higsfa import HiSFA, Layer
X = np.random.default_rng(0).normal(size=(600, 4, 4, 3)).cumsum(axis=0)
expansion = "identity | power0.8 | signed_power0.8 | max2 | quadratic[:3] | normalized_quadratic[:2]"
layers = [Layer((2, 2), n_components=4, n_slow=2, expansion=expansion), Layer((2, 2), n_components=5, n_slow=2)]
found = [HiSFA(layers).fit(X.astype(dtype)).transform(X.astype(dtype)) for dtype in (np.float32, np.float64)]
np.savez(sys.argv[1], single=found[0], double=found[1])
"""


def emulated() -> list[str]:
    """What failed of our compiled routines on other processors: the version that is taken, and the numbers."""
    from higsfa.core.native import library

    path = Path(library.__file__).with_name(library.LIBRARY)
    table = subprocess.run(["nm", str(path)], capture_output=True, text=True, check=True).stdout
    entries = [line.split() for line in table.splitlines()]
    failed, python = [], os.path.realpath(sys.executable)
    # The interpreter behind a virtual environment does not know its packages.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        symbols = Path(folder, "symbols")
        symbols.write_text("\n".join(f"{entry[0]} {entry[2]}" for entry in entries if len(entry) == 3))
        reference = Path(folder, "reference.npz")
        numpy_only = environment | {"HIGSFA_KERNELS": "numpy"}
        subprocess.run([python, "-c", FEATURES, str(reference)], env=numpy_only, check=True)
        for processor, wanted in {"": None, **EMULATED}.items():
            run = [*(["qemu-x86_64", "-cpu", processor] if processor else []), python, "-c"]
            given: dict[str, Any] = {"env": environment, "capture_output": True, "text": True}
            chosen = subprocess.run([*run, CHOSEN, str(symbols), str(path)], check=False, **given)
            out = Path(folder, f"{processor or 'here'}.npz")
            computed = subprocess.run([*run, FEATURES, str(out)], check=False, **given)
            name, version = processor or "this processor", chosen.stdout.strip() or chosen.stderr[-200:]
            if computed.returncode:
                failed.append(f"{name}: {computed.returncode} {computed.stderr[-200:]}")
                continue
            with np.load(reference) as expected, np.load(out) as got:
                off = {key: float(np.abs(got[key] - expected[key]).max() / expected[key].std()) for key in expected}
            print(f"{name}: {version}; off numpy's features by {off['single']:.1e}, in double by {off['double']:.1e}")
            if wanted not in (None, version) or off["single"] > 1e-3 or off["double"] > 1e-9:
                failed.append(name)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the tests in QUICK")
    parser.add_argument("--only", choices=list(kinds()), help="one kind of processor")
    parser.add_argument("--emulated", action="store_true", help="compiled routines on emulated processors; needs qemu")
    parser.add_argument("--workers", default="2", help="of pytest (default: 2)")
    options = parser.parse_args()
    if platform.machine() not in {"x86_64", "AMD64"}:
        sys.exit(f"only processors of the kind x86-64 can stand in for others, this one is {platform.machine()}")
    if options.emulated:
        failed = emulated()
        sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
    paths = QUICK if options.quick else NUMERICAL
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", options.workers, "--dist", "worksteal", *paths]
    failed = []
    for name, changes in kinds().items():
        if options.only not in {None, name}:
            continue
        # Workers of pytest share the cores; threads of BLAS would only be in each other's way.
        environment = os.environ | changes | {"OPENBLAS_NUM_THREADS": "1"}
        print(f"== {name}", flush=True)
        reason = not_in_force(changes, environment)
        if reason:
            print(f"error: {reason}")
        if reason or subprocess.run(pytest, env=environment, cwd=ROOT, check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
