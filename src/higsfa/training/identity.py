"""What a function is: a text that is the same in the next process, and another one for another function.

The walk through a function is that of pickle, but where pickle notes a name, this reads the code: instructions,
constants, defaults, what a closure holds, the globals that are mentioned. Of installed packages name and version are
enough. What cannot be followed is an error: two functions that differ there would look alike.
"""

from __future__ import annotations

import dis
import hashlib
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range, slice)
WRAPPERS = (property, staticmethod, classmethod, cached_property)


class UnknownIdentity(ValueError):
    """Something that a function depends on has no identity beyond this process."""


def identify(function: Callable[..., Any]) -> str:
    """Name and fingerprint of a function, or of an object that can be called."""
    kind = type(function)
    module = getattr(function, "__module__", None) or kind.__module__
    name = getattr(function, "__qualname__", None) or kind.__qualname__
    try:
        fingerprint = _Walk().digest(function).hex()[:16]
    except RecursionError:
        raise UnknownIdentity("it is nested too deeply") from None
    return f"{module}.{name} {fingerprint}"


class _Walk:
    """Digests of values, each worked out once; a value within itself counts by how far up it is."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Any, bytes]] = {}
        self._path: list[int] = []

    def digest(self, value: Any) -> bytes:
        if type(value) in PLAIN:
            return _hash(type(value).__name__, repr(value).encode())
        if id(value) in self._path:
            return _hash("again", len(self._path) - self._path.index(id(value)))
        if id(value) not in self._done:
            self._path.append(id(value))
            try:
                found = self._look_into(value)
            finally:
                self._path.pop()
            self._done[id(value)] = (value, found)  # the value lives on, so that no other gets its id
        return self._done[id(value)][1]

    def _all(self, values: Iterable[Any]) -> list[bytes]:
        return [self.digest(value) for value in values]

    def _look_into(self, value: Any) -> bytes:
        if type(value) in (tuple, list):
            return _hash(type(value).__name__, *self._all(value))
        if type(value) in (set, frozenset, dict):
            items = value.items() if isinstance(value, dict) else value
            return _hash(type(value).__name__, *sorted(self._all(items)))
        if type(value) is np.ndarray and not value.dtype.hasobject:
            return _hash("array", value.dtype.descr, value.shape, np.ascontiguousarray(value).tobytes())
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, ModuleType):
            return self._module(value)
        name = _name(value)
        if name is not None:
            return _hash("name", name)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return _hash("method", *self._all((value.__func__, value.__self__)))
        if isinstance(value, type):
            return self._class(value)
        return self._object(value)

    def _code(self, code: CodeType) -> bytes:
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return _hash("code", code.co_code, counts, names, code.co_exceptiontable, *self._all(code.co_consts))

    def _function(self, function: FunctionType) -> bytes:
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(cell.cell_contents)
            except ValueError:  # a name that has no value yet
                cells.append(NotImplemented)
        mentioned = {name: function.__globals__.get(name) for name in _global_names(function.__code__)}
        parts = (function.__code__, function.__defaults__, function.__kwdefaults__, cells, mentioned)
        return _hash("function", *self._all(parts))

    def _class(self, kind: type) -> bytes:
        own = {
            name: value
            for name, value in vars(kind).items()
            if isinstance(value, (FunctionType, *WRAPPERS)) or not name.startswith(("__", "_abc_"))
        }
        return _hash("class", kind.__qualname__, *self._all((kind.__bases__, own)))

    def _module(self, module: ModuleType) -> bytes:
        """The text of a user's module, and what it has taken from other modules."""
        if _is_installed(module.__name__):
            return _hash("module", module.__name__, _version(module.__name__))
        try:
            text = Path(str(getattr(module, "__file__", None))).read_bytes()
        except OSError:
            raise UnknownIdentity(f"it uses the module {module.__name__}, whose text cannot be read") from None
        taken = {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, ModuleType)
            or (isinstance(value, FunctionType | type) and value.__module__ != module.__name__)
        }
        return _hash("module", module.__name__, text, self.digest(taken))

    def _object(self, value: Any) -> bytes:
        if isinstance(value, WRAPPERS):
            names = ("fget", "fset", "fdel", "__func__", "func")
            return _hash(type(value).__name__, *self._all(getattr(value, name, None) for name in names))
        try:
            parts = value.__reduce_ex__(4)
        except Exception as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise UnknownIdentity(f"it uses an object of {kind} ({error!s:.100})") from None
        if isinstance(parts, str):
            return _hash("name", parts, self.digest(type(value)))
        # How to make it, of what, and its state; then items of lists and dicts, as iterators.
        return _hash("object", *self._all(part if k < 3 else list(part or ()) for k, part in enumerate(parts[:5])))


def _hash(*parts: object) -> bytes:
    sha = hashlib.sha256()
    for part in parts:
        piece = part if isinstance(part, bytes) else repr(part).encode()
        sha.update(len(piece).to_bytes(8, "little") + piece)
    return sha.digest()


def _global_names(code: CodeType) -> set[str]:
    """Globals that a function mentions, also within functions inside it."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def _name(value: Any) -> str | None:
    """Name and version of what an installed package offers under its name, None for anything else."""
    module = getattr(value, "__module__", None) or ("scipy.special" if isinstance(value, np.ufunc) else None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not _is_installed(module):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}.{name} {_version(module)}" if found is value else None


def _is_installed(module: str) -> bool:
    """Whether a module came with Python, with this package or with another one that was installed."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top == "higsfa":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and any(Path(file).resolve().is_relative_to(folder) for folder in _package_folders())


@cache
def _package_folders() -> list[Path]:
    paths = sysconfig.get_paths()
    named = [paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()]
    return [Path(folder).resolve() for folder in named]


def _version(module: str) -> str:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return "{}.{}".format(*sys.version_info)
    return str(getattr(sys.modules.get(top), "__version__", ""))
