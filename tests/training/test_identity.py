"""A function is known again in the next process, and told from every other."""

import collections
import dataclasses
import functools
import importlib
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import types

import numpy as np
import pytest
import scipy.special

from higsfa import SFA
from higsfa.training.identity import UnknownIdentity, identify

SCALE = 2.0
TABLE = np.arange(3.0)


def plain(X):
    return X * 2


def of_globals(X):
    return X * SCALE + TABLE[0]


def calling(X):
    return np.sqrt(np.abs(plain(X)))


def looping(X):
    return looping(X[1:]) if len(X) else X


def closed_over(factor):
    def multiplied(X):
        return X * factor

    return multiplied


def counting():
    def even(X):
        return odd(X)

    def odd(X):
        return even(X)

    return even


class Times:
    offset = 0

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, X):
        return X * self.factor + self.offset


class TimesPlus(Times):
    offset = 1


@dataclasses.dataclass(frozen=True)
class Power:
    exponent: float

    @functools.cached_property
    def half(self):
        return self.exponent / 2

    @staticmethod
    def of(X):
        return X

    @property
    def double(self):
        return 2 * self.exponent

    def __call__(self, X):
        return self.of(X) ** self.exponent


class Constant:
    """Known by a name, as pickle knows it."""

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return self.name


FUNCTIONS = {
    "plain": plain,
    "another constant": lambda X: X * 3,
    "another operation": lambda X: X + 3,
    "another attribute": lambda X: X.real,
    "one more attribute": lambda X: X.imag,
    "another order of arguments": lambda X, Y=2: X - Y,
    "other arguments": lambda Y, X=2: X - Y,
    "another default": lambda X, Y=3: X - Y,
    "keyword": lambda X, *, Y=3: X - Y,
    "another keyword default": lambda X, *, Y=4: X - Y,
    "inner function": lambda X: np.array([x * 2 for x in X]),
    "inner constant": lambda X: np.array([x * 3 for x in X]),
    "set of constants": lambda X: X if X.ndim in {1, 2, 5} else -X,
    "another set of constants": lambda X: X if X.ndim in {1, 2, 6} else -X,
    "globals": of_globals,
    "calling": calling,
    "recursive": looping,
    "mutually recursive": counting(),
    "closure": closed_over(2),
    "another closure": closed_over(2.0),
    "closure of an array": closed_over(np.arange(3.0)),
    "closure of another array": closed_over(np.arange(3.0) + 1),
    "closure of another shape": closed_over(np.arange(3.0)[None]),
    "closure of single precision": closed_over(np.arange(3.0, dtype=np.float32)),
    "closure of objects": closed_over(np.array([1, "two", None], dtype=object)),
    "closure of a dict": closed_over({"a": 1, "b": 2}),
    "closure of another dict": closed_over({"a": 1, "b": 3}),
    "closure of a list": closed_over([1, 2]),
    "closure of a tuple": closed_over((1, 2)),
    "closure of a generator": closed_over(np.random.default_rng(0)),
    "closure of another generator": closed_over(np.random.default_rng(1)),
    "closure of an estimator": closed_over(SFA(2)),
    "closure of another estimator": closed_over(SFA(3)),
    "closure of a function": closed_over(plain),
    "closure of another function": closed_over(of_globals),
    "closure of a name": closed_over(Constant("FIRST")),
    "closure of another name": closed_over(Constant("SECOND")),
    "closure of a queue": closed_over(collections.deque([1, 2])),
    "closure of another queue": closed_over(collections.deque([1, 3])),
    "closure of a dict in order": closed_over(collections.OrderedDict(a=1)),
    "closure of another dict in order": closed_over(collections.OrderedDict(a=2)),
    "partial": functools.partial(np.clip, a_min=0, a_max=1),
    "another partial": functools.partial(np.clip, a_min=0, a_max=2),
    "numpy": np.tanh,
    "numpy, not a ufunc": np.atleast_2d,
    "scipy": scipy.special.expit,
    "scipy, in Python": scipy.special.softmax,
    "builtin": abs,
    "method of an array": np.arange(3.0).__mul__,
    "method of another array": np.arange(4.0).__mul__,
    "reduction": np.add.reduce,
    "object": Times(2),
    "another object": Times(3),
    "object of another class": TimesPlus(2),
    "method": Times(2).__call__,
    "data class": Power(2),
    "another data class": Power(3),
}


def test_functions_that_differ_have_different_identities():
    found = {name: identify(function) for name, function in FUNCTIONS.items()}
    for (a, one), (b, other) in itertools.combinations(found.items(), 2):
        assert one != other, (a, b)


def test_a_function_is_the_same_however_often_it_was_called_and_wherever_it_stands():
    X = np.random.default_rng(0).normal(size=(50, 3))
    before = {name: identify(function) for name, function in FUNCTIONS.items()}
    for name in ("plain", "globals", "calling", "closure", "object", "inner function"):
        for _ in range(100):  # instructions are replaced by faster ones
            FUNCTIONS[name](X)
    assert before == {name: identify(function) for name, function in FUNCTIONS.items()}
    first, second = lambda X: X + 1, lambda X: X + 1
    # fmt: off
    third = lambda X: (  # noqa: E731
        X +
        1  # a comment
    )
    # fmt: on
    assert len({identify(function) for function in (first, second, third)}) == 1


def test_a_function_is_the_same_in_the_next_process():
    here = {name: identify(function) for name, function in FUNCTIONS.items()}
    code = f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import test_identity as again
        for name, function in again.FUNCTIONS.items():
            print(name, "|", again.identify(function).split()[-1])
    """
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=environment, check=False
    )
    there = dict(line.split(" | ") for line in found.stdout.splitlines())
    assert there == {name: text.split()[-1] for name, text in here.items()}, found.stderr


def test_a_global_that_changes_makes_another_function(monkeypatch):
    before, caller = identify(of_globals), identify(calling)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert identify(of_globals) != before
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert identify(of_globals) == before
    monkeypatch.setitem(globals(), "TABLE", TABLE + 1)
    assert identify(of_globals) != before
    monkeypatch.setitem(globals(), "plain", lambda X: X * 3)
    assert identify(calling) != caller


def test_a_class_that_changes_makes_another_function(monkeypatch):
    before, derived = identify(Times(2)), identify(TimesPlus(2))
    monkeypatch.setattr(Times, "__call__", lambda self, X: X)
    assert identify(Times(2)) != before
    assert identify(TimesPlus(2)) != derived
    power = identify(Power(2))
    monkeypatch.setattr(Power, "of", staticmethod(lambda X: -X))
    assert identify(Power(2)) != power


def test_another_version_of_a_package_makes_another_function(monkeypatch):
    names = ("numpy", "numpy, not a ufunc", "scipy", "scipy, in Python", "calling")
    before = {name: identify(FUNCTIONS[name]) for name in names}
    monkeypatch.setattr(np, "__version__", "99")
    monkeypatch.setattr(scipy, "__version__", "99")
    for name in names:
        assert identify(FUNCTIONS[name]) != before[name]
    python = identify(abs)
    monkeypatch.setattr(sys, "version_info", (4, 0))
    assert identify(abs) != python


MODULES = {
    "mine": "import helpers\nfrom others import half\nimport numpy as np\ndef f(X):\n    return helpers.g(X)\n",
    "helpers": "from others import half\ndef g(X):\n    return half(X)\n",
    "others": "def half(X):\n    return X / 2\n",
}


@pytest.mark.parametrize("changed", ["nothing", "mine", "helpers", "others"])
def test_modules_of_the_user_count_with_what_they_use(changed, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)

    def identity(modules):
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        try:
            return identify(importlib.import_module("mine").f)
        finally:
            for name in modules:
                del sys.modules[name]

    before = identity(MODULES)
    assert before.startswith("mine.f ")
    minus = {name: text.replace("return ", "return -") if name == changed else text for name, text in MODULES.items()}
    assert (identity(minus) == before) == (changed == "nothing")


def test_a_module_without_text_is_not_known(monkeypatch):
    monkeypatch.setitem(globals(), "made_up", types.ModuleType("made_up"))
    with pytest.raises(UnknownIdentity, match="made_up, whose text cannot be read"):
        identify(lambda X: made_up.f(X))  # noqa: F821


@pytest.mark.parametrize(
    "function",
    [
        closed_over(threading.Lock()),
        closed_over(sys.__stdout__),
        closed_over(x for x in [1]),
        np.frompyfunc(plain, 1, 1),
        functools.partial(plain, threading.Lock()),
        Times(threading.Lock()),
    ],
    ids=["lock", "file", "generator", "ufunc of a function", "partial", "object"],
)
def test_what_cannot_be_known_again_is_said(function):
    with pytest.raises(UnknownIdentity, match="it uses an object of"):
        identify(function)


def test_endless_nesting_is_said():
    nested = []
    for _ in range(10**5):
        nested = [nested]
    with pytest.raises(UnknownIdentity, match="nested"):
        identify(closed_over(nested))


def test_a_name_without_a_value_is_no_obstacle():
    def outer(given):
        if given:
            late = 1

        def inner(X):
            return X * late

        return inner

    assert identify(outer(False)) != identify(outer(True))


def test_it_matters_which_name_has_no_value():
    def closed(first_has_one):
        def function(X):
            return X * a + b

        if first_has_one:
            a = 3
        else:
            b = 3
        return function

    assert identify(closed(True)) != identify(closed(False))
