"""The text form of expansions: from ``identity | quadratic[:10]`` to terms, with errors that point."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import NoReturn

from higsfa.core.expansion.terms import (
    Identity,
    Max2,
    NormalizedQuadratic,
    Polynomial,
    Power,
    Quadratic,
    Selection,
    SignedPower,
    Term,
)

KNOWN_TERMS = "identity, power<p>, signed_power<p>, quadratic, polynomial<n>, normalized_quadratic, max2"

_PLAIN: dict[str, type[Term]] = {
    "identity": Identity,
    "quadratic": Quadratic,
    "normalized_quadratic": NormalizedQuadratic,
    "max2": Max2,
}
# Terms with a number: how they are made of its digits, how it looks, and an example.
_REAL = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[0-9]+")
_NUMBERED: dict[str, tuple[Callable[[str, Selection | None], Term], re.Pattern[str], str]] = {
    "power": (lambda p, s: Power(float(p), selection=s), _REAL, "power0.8"),
    "signed_power": (lambda p, s: SignedPower(float(p), selection=s), _REAL, "signed_power0.8"),
    "polynomial": (lambda n, s: Polynomial(int(n), selection=s), _WHOLE, "polynomial3"),
}
_SLICE = re.compile(r"\[\s*(?:([0-9]+)|([0-9]*)\s*:\s*([0-9]*))\s*\]\s*")


def parse_terms(text: str) -> tuple[Term, ...]:
    """Read terms separated by ``|``."""
    function = re.search(r"<function[^>]*>?", text)
    if function:
        _fail(text, *function.span(), "functions have no text form; pass the function itself")
    terms, start = [], 0
    for part in text.split("|"):
        terms.append(_parse_term(text, start, start + len(part)))
        start += len(part) + 1
    return tuple(terms)


def _parse_term(text: str, start: int, stop: int) -> Term:
    """Read the term text[start:stop]; the whole text serves for error messages."""
    head, bracket, _ = text[start:stop].partition("[")
    middle = start + len(head)
    name = "".join(head.split())
    if not name:
        _fail(text, start, middle, "a term is missing")
    word = re.sub(r"[^a-z_].*", "", name)
    if name not in _PLAIN and word not in _NUMBERED:
        _fail(text, start, middle, f"unknown term '{name}'{_suggestion(name)}")
    selection = _parse_slice(text, middle, stop) if bracket else None
    if name in _PLAIN:
        return _PLAIN[name](selection=selection)
    make, pattern, example = _NUMBERED[word]
    digits = name.removeprefix(word)
    if not pattern.fullmatch(digits):
        kind = "positive number" if pattern is _REAL else "positive integer"
        _fail(text, start, middle, f"'{word}' must be followed by a {kind}, as in '{example}'")
    try:
        return make(digits, selection)
    except ValueError as error:
        _fail(text, start, middle, str(error))


def _suggestion(name: str) -> str:
    """Say which known term comes nearest to an unknown one."""
    near = difflib.get_close_matches(name.lower(), [*_PLAIN, *_NUMBERED], n=1, cutoff=0.3)
    if not near:
        return ""
    return f", did you mean '{_NUMBERED[near[0]][2] if near[0] in _NUMBERED else near[0]}'?"


def _parse_slice(text: str, start: int, stop: int) -> Selection:
    """Read the slice text[start:stop]."""
    match = _SLICE.fullmatch(text, start, stop)
    if not match:
        _fail(text, start, stop, "a slice is [a:b], [:b], [a:] or [i], counted from 0 and without a step")
    single, first, last = match.groups()
    try:
        if single is not None:
            return Selection(int(single), int(single) + 1)
        return Selection(int(first or 0), int(last) if last else None)
    except ValueError as error:
        _fail(text, start, stop, str(error))


def _fail(text: str, start: int, stop: int, message: str) -> NoReturn:
    """Raise a ValueError that underlines text[start:stop] without the white space around it."""
    part = text[start:stop]
    if part.strip():
        start += len(part) - len(part.lstrip())
    shown = re.sub(r"\s", " ", text)
    marks = " " * start + "^" * max(1, len(part.strip()))
    raise ValueError(f"cannot read expansion {text!r}: {message}\n  {shown}\n  {marks}\nknown terms: {KNOWN_TERMS}")
