"""A built wheel, repaired and tried in a new environment in which no compiler can be found; `make wheels` calls this.

python tests/wheels.py BUILT OUT        the wheel in BUILT goes to OUT, as manylinux on Linux, and is tried
python tests/wheels.py --here           the higsfa that is installed is tried
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
QUICK = ["tests/test_single_nodes.py", "tests/test_sklearn.py", "tests/models", "tests/core/native/test_tile.py"]
NEEDED = ["hypothesis", "pandas", "pytest", "dask[array]", "distributed", "zarr"]


def main() -> None:
    if sys.argv[1:] == ["--here"]:
        try_installed(Path(sys.executable))
        return
    built, out = (Path(argument) for argument in sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    for source in built.glob("*.tar.gz"):
        shutil.copy2(source, out)
    (wheel,) = built.glob("*.whl")
    if sys.platform == "linux":
        subprocess.run(["auditwheel", "repair", "--wheel-dir", str(out), str(wheel)], check=True)
        (wheel,) = out.glob("*.whl")
        subprocess.run(["auditwheel", "show", str(wheel)], check=True)
    else:
        wheel = Path(shutil.copy2(wheel, out))
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "Scripts" if os.name == "nt" else "bin", "python")
        install = [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", str(wheel), *NEEDED]
        subprocess.run(install, check=True, env={**os.environ, "CC": "no-compiler-here"})
        try_installed(python)


def try_installed(python: Path) -> None:
    """Run quick tests with the installed package, not with the source beside them, and its compiled routines."""
    check = (
        "import higsfa, higsfa.core.native.library as library; "
        f"assert {str(ROOT / 'src')!r} not in higsfa.__file__, higsfa.__file__; "
        "assert library.compiled(), 'no compiled routines'; print(higsfa.__file__)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as elsewhere:
        subprocess.run([str(python), "-c", check], check=True, cwd=elsewhere, env=environment)
    options = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "-o", "pythonpath=tests"]
    subprocess.run([str(python), "-m", "pytest", *options, *QUICK], check=True, cwd=ROOT, env=environment)


if __name__ == "__main__":
    main()
