"""Nonlinear expansions z = g(x) of a node's input, and their text form.

An expansion is a list of terms, each of which computes some rows of z::

    identity[:18] | power0.8[:15] | max2[:17] | quadratic[:10]

The input of a node is ``children`` x ``width`` values, child by child: input = child * width + position. A
single estimator has one child. Slices are positions *within each child*, counted from 0, half-open.

======================== ============================================================================
term                     rows
======================== ============================================================================
``identity``             x
``power<p>``             ``|x|^p``, as in ``power0.8``
``signed_power<p>``      ``sign(x) |x|^p``
``max2``                 max(x_i, x_i+1): across children without a slice, within each child with one
``quadratic``            x_i x_j, i <= j, jointly over all children
``polynomial<n>``        all monomials of degree 1 to n, jointly over all children, degree by degree
``normalized_quadratic`` x_i x_j / (1 + ||x||^2), i <= j, over the selected inputs of all children
``relu<n>``              max(0, w'x) for n fixed, random-looking combinations w of +1 and -1, over all children
``kernel<n>``            exp(-||x - p||^2 / mean ||p||^2) for n samples p; alone, in a layer of one node
======================== ============================================================================

Blocks are feature-major, (inputs, samples), so that every operation runs along contiguous rows.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import index
from typing import Any, NoReturn

import numpy as np

from higsfa.core.expansion.kernel import Kernel
from higsfa.core.expansion.monomials import Array
from higsfa.core.expansion.terms import (
    Function,
    Identity,
    Max2,
    NormalizedQuadratic,
    Polynomial,
    Power,
    Quadratic,
    Relu,
    Selection,
    SignedPower,
    Term,
)
from higsfa.core.native.library import COPY, NORMALIZE, Program

__all__ = ["Expansion", "FunctionExpansion", "as_expansion", "parse_expansion"]

KNOWN_TERMS = (
    "identity, power<p>, signed_power<p>, quadratic, polynomial<n>, normalized_quadratic, max2, relu<n>, kernel<n>"
)

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
    "relu": (lambda n, s: Relu(int(n), selection=s), _WHOLE, "relu500"),
    "kernel": (lambda n, s: Kernel(int(n), selection=s), _WHOLE, "kernel500"),
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


MAX_PROGRAM = 2**15
"""Rows that are worked out one by one for compiled loops; of more, terms make long blocks, which is as quick."""


@dataclass(frozen=True, eq=False, repr=False)
class Expansion:
    """A nonlinear expansion: the rows of its terms, one term below the other.

    Parameters
    ----------
    terms : tuple of Term
        What to compute; at least one. Usually made by `parse_expansion` or `as_expansion`.

    Examples
    --------
    >>> expansion = parse_expansion("identity | quadratic[:2]")
    >>> expansion.size(3)
    6
    >>> expansion(np.array([[1.0], [2.0], [3.0]])).ravel()
    array([1., 2., 3., 1., 2., 4.])
    """

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        terms = tuple(self.terms)
        if not terms:
            raise ValueError(f"an expansion needs at least one term; known terms: {KNOWN_TERMS}")
        for term in terms:
            if not isinstance(term, Term):
                raise TypeError(f"terms of an Expansion must be Term records, got {term!r}; see parse_expansion")
        object.__setattr__(self, "terms", terms)

    def __eq__(self, other: object) -> bool:
        return self.terms == other.terms if isinstance(other, Expansion) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.terms)

    def __str__(self) -> str:
        return " | ".join(map(str, self.terms))

    def __repr__(self) -> str:
        return f"<Expansion {self}>"

    def __or__(self, other: object) -> Expansion:
        return Expansion(self.terms + as_expansion(other).terms)

    def __ror__(self, other: object) -> Expansion:
        return Expansion(as_expansion(other).terms + self.terms)

    @cached_property
    def is_linear(self) -> bool:
        """Whether z consists of plain inputs only, all or some of them."""
        return all(term.is_linear for term in self.terms)

    def size(self, width: int, children: int = 1) -> int:
        """The number of rows of z, I', for `children` children of `width` inputs each."""
        return self.layout(width, children).size

    def identity_rows(self, n_inputs: int, children: int = 1) -> Array:
        """For each input the first row of z that is this input unchanged, or -1."""
        return self.layout(_child_width(n_inputs, children), children).identity_rows

    def layout(self, width: int, children: int = 1) -> Layout:
        """Where the rows of z come from, for inputs of this shape; worked out once, because it is asked for often."""
        known: dict[tuple[int, int], Layout] = self.__dict__.setdefault("_known", {})
        if (width, children) not in known:
            known[width, children] = Layout.of(self.terms, index(width), index(children))
        return known[width, children]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_known"}

    def fill(self, X: Array, out: Array, children: int) -> None:
        """Write z of a block X (inputs, samples) into `out`, which must not overlap X; nothing is checked."""
        layout = self.layout(len(X) // children, children)
        blocks = X.reshape(children, layout.width, X.shape[1])
        for term, rows in layout.spans:
            # Our own arithmetic lets inf and nan pass without warnings; a user's function does not.
            with np.errstate(all=None if isinstance(term, Function) else "ignore"):
                term.fill(term.select(blocks), out[rows])

    def __call__(self, X: Array, children: int = 1) -> Array:
        """Return z, of shape (size, n_samples), for a block X of shape (n_inputs, n_samples), child-major."""
        n_children, width, n = _as_blocks(X, children).shape
        out = np.empty((self.size(width, n_children), n), X.dtype)
        self.fill(X, out, n_children)
        return out

    def backward(self, X: Array, G: Array, children: int = 1) -> Array:
        """Vector-Jacobian product: dL/dx from dL/dz.

        At x = 0 the slope of a power is taken as 0; where both arguments of max2 are equal, the first counts.

        Parameters
        ----------
        X : ndarray of shape (n_inputs, n_samples)
            Input block.
        G : ndarray of shape (size, n_samples), same dtype as X
            dL/dz.
        children : int, default=1
            Number of children.

        Returns
        -------
        ndarray of shape (n_inputs, n_samples)
            dL/dx.
        """
        blocks = _as_blocks(X, children)
        layout = self.layout(blocks.shape[1], children)
        shape = (layout.size, blocks.shape[2])
        if not isinstance(G, np.ndarray) or G.dtype != X.dtype or G.shape != shape:
            raise ValueError(f"G must be an array of shape {shape} and of the dtype of X, {X.dtype}, got {G!r:.80}")
        gradient = np.zeros(blocks.shape, X.dtype)
        for term, rows in layout.spans:
            with np.errstate(all=None if isinstance(term, Function) else "ignore"):
                term.pull_back(term.select(blocks), G[rows], term.select(gradient))
        return gradient.reshape(X.shape)


@dataclass(frozen=True, eq=False)
class Layout:
    """The rows of an expansion for inputs of one shape.

    Sizes are needed before the input has been checked, so arrays that grow with them are made later.

    Attributes
    ----------
    width, children : shape of the input.
    size : number of rows, I'.
    spans : terms and their rows.
    is_identity : whether z = x exactly.
    """

    width: int
    children: int
    size: int
    spans: tuple[tuple[Term, slice], ...]
    is_identity: bool

    @classmethod
    def of(cls, terms: tuple[Term, ...], width: int, children: int) -> Layout:
        if width < 1 or children < 1:
            raise ValueError(f"width and children must be at least 1, got width={width} and children={children}")
        spans, stop = [], 0
        for term in terms:
            start, stop = stop, stop + term.size(width, children)
            spans.append((term, slice(start, stop)))
        is_identity = len(terms) == 1 and terms[0].is_linear and stop == width * children
        return cls(width, children, stop, tuple(spans), is_identity)

    @cached_property
    def identity_rows(self) -> Array:
        """For each input the first row of z that is this input unchanged, or -1."""
        where = np.full((self.children, self.width, 1), -1)
        for term, rows in reversed(self.spans):
            if term.keeps_inputs:
                view = term.select(where)
                view[...] = rows.start + np.arange(view.size).reshape(view.shape)
        return where.reshape(-1)

    @cached_property
    def missing(self) -> Array:
        """Inputs that z does not contain."""
        return np.flatnonzero(self.identity_rows < 0)

    @cached_property
    def input_rows(self) -> Array:
        """The row that holds each input, if the missing ones follow below z."""
        rows = self.identity_rows.copy()
        rows[self.missing] = self.size + np.arange(len(self.missing))
        return rows

    @cached_property
    def programs(self) -> tuple[Program, Program] | None:
        """All rows as elementary operations, without and with the inputs that z does not contain below them.

        None if there are too many rows, or some cannot be made of such operations.
        """
        if self.size > MAX_PROGRAM:
            return None
        inputs = np.arange(self.children * self.width).reshape(self.children, self.width, 1)
        rows = []
        for term, span in self.spans:
            made = term.operations(term.select(inputs)[:, :, 0])
            if made is None:
                return None
            for k, (what, i, j, exponent) in enumerate(made):
                rows.append((what, i, j, span.start + (0 if what == NORMALIZE else k), exponent))
        copies = [(COPY, i, i, self.size + k, 1.0) for k, i in enumerate(self.missing.tolist())]
        return Program.of(rows), Program.of(rows + copies)


class FunctionExpansion(Expansion):
    """An expansion given as a function of samples.

    Parameters
    ----------
    func : callable
        Maps samples as rows, (n, I), to (n, I'); I' may depend on I only. It gets an array of its own, which
        it may keep but not write to.
    name : str, optional
        Printed name; by default that of the function.
    gradient : callable, optional
        ``gradient(X, G)``, with X (n, I) and G = dL/dZ (n, I'), returns dL/dX (n, I); for `backward` only.

    Notes
    -----
    I' is found by a call on two samples of zeros. A function has no text form and can be pickled only if it
    is importable.
    """

    def __init__(
        self,
        func: Callable[[Array], Any],
        name: str | None = None,
        gradient: Callable[[Array, Array], Any] | None = None,
    ) -> None:
        if not callable(func) or isinstance(func, Expansion):
            raise TypeError(f"func must be a function of an array (n, I), got {func!r}")
        if gradient is not None and not callable(gradient):
            raise TypeError(f"gradient must be a function of (X, G) or None, got {gradient!r}")
        name = str(name or getattr(func, "__name__", type(func).__name__))
        super().__init__((Function(func, name, gradient),))


def as_expansion(spec: object) -> Expansion:
    """Make an expansion of what a user gave.

    Parameters
    ----------
    spec : Expansion, str, callable, or list or tuple of those
        A text is parsed, a function wrapped in `FunctionExpansion`, the members of a list are concatenated.

    Returns
    -------
    Expansion
    """
    if isinstance(spec, Expansion):
        return spec
    if isinstance(spec, str):
        return parse_expansion(spec)
    if isinstance(spec, list | tuple):
        return Expansion(tuple(term for part in spec for term in as_expansion(part).terms))
    if callable(spec) and not isinstance(spec, type):
        return FunctionExpansion(spec)
    raise TypeError(
        f"expansion must be a text such as 'identity | quadratic[:10]', an Expansion, a function "
        f"(n, I) -> (n, I'), or a list of those; got {spec!r} of type {type(spec).__name__}"
    )


@lru_cache(maxsize=256)
def parse_expansion(text: str) -> Expansion:
    """Read the text form of an expansion.

    Parameters
    ----------
    text : str
        Terms separated by ``|``, each with an optional slice ``[a:b]``, ``[:b]``, ``[a:]`` or ``[i]``.

    Returns
    -------
    Expansion

    Examples
    --------
    >>> str(parse_expansion("identity|power0.80 [0:15]"))
    'identity | power0.8[:15]'
    """
    if not isinstance(text, str):
        raise TypeError(f"parse_expansion takes a str, got {type(text).__name__}; see as_expansion")
    return Expansion(parse_terms(text))


def _child_width(n_inputs: int, children: int) -> int:
    if children < 1 or n_inputs < 1:
        raise ValueError(f"inputs and children must be at least 1, got {n_inputs} inputs and {children} children")
    if n_inputs % children:
        raise ValueError(f"{n_inputs} inputs cannot be shared by {children} children of equal width")
    return n_inputs // children


def _as_blocks(X: Array, children: int) -> Array:
    """View (children, width, n) of a checked input block."""
    if not isinstance(X, np.ndarray) or X.dtype not in (np.float32, np.float64):
        given = f"an array of {X.dtype}" if isinstance(X, np.ndarray) else f"a {type(X).__name__}"
        raise TypeError(f"X must be a float32 or float64 ndarray, got {given}")
    if X.ndim != 2:
        raise ValueError(f"X must be a block of shape (n_inputs, n_samples), got shape {X.shape}")
    width = _child_width(X.shape[0], children)
    return X.reshape(children, width, X.shape[1])
