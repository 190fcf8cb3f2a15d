"""Builds the kernels with AddressSanitizer and UBSan, and runs their tests on that build: python tests/sanitizers.py

What compiled code reads or writes outside an array, and arithmetic that C does not define, ends the run. Needs gcc.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "higsfa" / "core" / "native" / "kernels.c"
TESTS = ["test_library.py", "test_tile.py", "test_layouts.py", "test_short.py", "test_warp.py", "../test_scratch.py"]
FLAGS = ["-O1", "-g", "-fno-omit-frame-pointer", "-fPIC", "-shared", "-fopenmp-simd", "-DONE_VERSION"]
SANITIZERS = ["-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]

READ_OUTSIDE = """
import numpy as np
from higsfa.core.native import encode
from higsfa.core.native import tile as fused
from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.node.frontend import Frontend
from higsfa.core.native.tile import Rows
front = fused.Front.of(Frontend(parse_expansion("quadratic"), 1, 2, np.zeros(2)), np.dtype(float))
raw = Rows(np.ones((2, 400)), np.array([0, 1]))
raw.which[1] = 2  # behind the end; checked when raw input is made
encoder = encode.Encoder.of(front, np.ones((1, 3)), np.zeros(1), np.ones((0, 3)), np.zeros(0))
print("encoded:", encode.encode_tile(encoder, raw, np.ones((1, 400))))
"""


def main() -> int:
    gcc = os.environ.get("CC", "gcc")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "kernels.so")
        subprocess.run([gcc, *FLAGS, *SANITIZERS, str(SOURCE), "-o", str(library)], check=True)
        found = subprocess.run([gcc, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
        environment = os.environ | {
            "HIGSFA_KERNELS": str(library),
            "LD_PRELOAD": found.stdout.strip(),
            "PYTHONMALLOC": "malloc",  # every object between guards of its own
            "PYTHONPATH": str(ROOT / "src"),
            "ASAN_OPTIONS": "detect_leaks=0",
        }
        noticed = subprocess.run([sys.executable, "-c", READ_OUTSIDE], capture_output=True, text=True, env=environment)
        if noticed.returncode == 0 or "heap-buffer-overflow" not in noticed.stderr:
            print(f"the sanitizers do not work here: {noticed.stdout}{noticed.stderr}", file=sys.stderr)
            return 1
        tests = [str(ROOT / "tests" / "core" / "native" / name) for name in TESTS]
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], cwd=ROOT, env=environment
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
