"""Compiles src/higsfa/core/native/kernels.c when the package is built or installed for development.

Without a C compiler the package is built all the same and uses numpy instead, more slowly.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CORE = Path("src", "higsfa", "core", "native")
SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared"]
TRIES = [
    ["-fopenmp-simd", "-mprefer-vector-width=512"],
    ["-fopenmp-simd", "-DONE_VERSION"],
    ["-DONE_VERSION"],
]
"""Further options, best first: not every compiler knows all of them."""


def compile_kernels(root: Path) -> Path | None:
    """Compile the library beside its source; None if that is not possible."""
    source, library = root / CORE / "kernels.c", root / CORE / f"kernels{SUFFIX}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if not compiler or shutil.which(compiler[0]) is None:
        compiler = ["cc"]
    fresh = library.with_name(library.name + ".new")
    for options in TRIES:
        command = [*compiler, *FLAGS, *options, str(source), "-o", str(fresh)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=300)
        except (OSError, subprocess.SubprocessError):
            continue
        fresh.replace(library)
        return library
    return None


class KernelsHook(BuildHookInterface):
    """Adds the compiled library to wheels and to editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        library = compile_kernels(Path(self.root))
        if library is None:
            self.app.display_warning("no C compiler: higsfa will use numpy for everything, more slowly")
            return
        build_data["artifacts"].append(f"/{CORE.as_posix()}/{library.name}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
