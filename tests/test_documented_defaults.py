"""What docstrings say about defaults is what the signatures have."""

import ast
import inspect
import re
from importlib import import_module

import pytest

MODULES = [
    *("higsfa", "higsfa.graphs", "higsfa.metrics", "higsfa.sources", "higsfa.presets", "higsfa.images"),
    *("higsfa.reconstruction", "higsfa.datasets", "higsfa.evaluation.protocols"),
]
PUBLIC = {
    f"{thing.__module__}.{thing.__qualname__}": thing
    for module in map(import_module, MODULES)
    for thing in (getattr(module, name) for name in module.__all__)
    if inspect.isfunction(thing) or inspect.isclass(thing)
}
NAMES = re.compile(r"^ *((?:\w+, )*\w+) : .*\bdefault=(.+)$", re.MULTILINE)


def documented(thing):
    """Parameters and the text of their defaults; several names may share one line, and then several values."""
    for names, text in NAMES.findall(inspect.getdoc(thing) or ""):
        names = names.split(", ")
        values = re.split(r", (?![^(]*\))| and ", text) if len(names) > 1 else [text]
        yield from zip(names, values * (len(names) if len(values) == 1 else 1), strict=True)


def test_defaults_are_found():
    found = {name: dict(documented(thing)) for name, thing in PUBLIC.items()}
    assert found["higsfa.images.pixels.normalize_contrast"]["std"] == "0.16"
    assert found["higsfa.evaluation.protocols.cross_database"]["high"] == "77"
    assert sum(map(len, found.values())) > 80


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if list(documented(thing))])
def test_documented_defaults_are_those_of_the_signature(name):
    parameters = inspect.signature(PUBLIC[name]).parameters
    for parameter, text in documented(PUBLIC[name]):
        if parameter not in parameters:  # an attribute, or a method's parameter
            continue
        value = parameters[parameter].default
        try:
            expected = ast.literal_eval(text.replace(",", "") if re.fullmatch(r"[\d,]+", text) else text.rstrip("."))
        except (ValueError, SyntaxError):
            continue  # in words
        assert value == expected, parameter
        assert type(value) is type(expected) or {type(value), type(expected)} <= {int, float}, parameter


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if name.startswith("higsfa.estimators.")])
def test_estimators_describe_all_their_parameters(name):
    text = inspect.getdoc(PUBLIC[name])
    described = {entry for line in re.findall(r"^((?:\w+, )*\w+) : ", text, re.MULTILINE) for entry in line.split(", ")}
    assert set(inspect.signature(PUBLIC[name]).parameters) <= described
    assert not re.search(r"\{[a-z_]+\}", re.sub(r":?math:.*|\\\w+\{\w+\}", "", text))  # no text is left to fill in
