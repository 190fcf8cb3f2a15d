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
======================== ============================================================================

Blocks are feature-major, (inputs, samples), so that every operation runs along contiguous rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

import numpy as np

from higsfa.core.expansion.rows import Array
from higsfa.core.expansion.terms import Function, Term
from higsfa.core.expansion.text import KNOWN_TERMS, parse_terms
from higsfa.core.native.library import NORMALIZE, Program

__all__ = ["Expansion", "FunctionExpansion", "as_expansion", "parse_expansion"]

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

    @property
    def is_scale_free(self) -> bool:
        """Whether scaling x by a positive number only scales each row of z."""
        return all(term.is_scale_free for term in self.terms)

    def is_identity(self, width: int) -> bool:
        """Whether z = x exactly, for any number of children of this width."""
        width, _ = _check_shape(width, 1)
        spans = [term.bounds(width) for term in self.terms]
        return self.is_linear and spans == [(0, width)]

    def size(self, width: int, children: int = 1) -> int:
        """Return the number of rows of z.

        Parameters
        ----------
        width : int
            Number of inputs of each child.
        children : int, default=1
            Number of children.

        Returns
        -------
        int
            Expanded size I'.
        """
        width, children = _check_shape(width, children)
        return self._plan(width, children).size

    def apply(self, X: Array, out: Array, children: int = 1) -> None:
        """Write z into ``out``.

        Parameters
        ----------
        X : ndarray of shape (n_inputs, n_samples), float32 or float64
            Input block, one row an input, child-major. It is not changed.
        out : ndarray of shape (size, n_samples), same dtype as X
            Where z goes; must not overlap X.
        children : int, default=1
            Number of children; it divides ``n_inputs``.
        """
        blocks = _as_blocks(X, children)
        n_children, width, n = blocks.shape
        _check_like(out, "out", (self.size(width, n_children), n), X)
        if np.may_share_memory(X, out):
            raise ValueError("X and out share memory; out must be another array, or X would be overwritten")
        self.fill(X, out, n_children)

    def fill(self, X: Array, out: Array, children: int) -> None:
        """Do what `apply` does, without looking at the arguments first."""
        width = len(X) // children
        blocks = X.reshape(children, width, X.shape[1])
        for term, rows in self._spans(width, children):
            with _quiet(term):
                term.fill(term.select(blocks), out[rows])

    def __call__(self, X: Array, children: int = 1) -> Array:
        """Return z, of shape (size, n_samples), for a block X of shape (n_inputs, n_samples)."""
        n_children, width, n = _as_blocks(X, children).shape
        out = np.empty((self.size(width, n_children), n), X.dtype)
        self.apply(X, out, children)
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
        n_children, width, n = blocks.shape
        _check_like(G, "G", (self.size(width, n_children), n), X)
        gradient = np.zeros(blocks.shape, X.dtype)
        for term, rows in self._spans(width, n_children):
            with _quiet(term):
                term.pull_back(term.select(blocks), G[rows], term.select(gradient))
        return gradient.reshape(X.shape)

    def program(self, width: int, children: int) -> Program | None:
        """Return all rows as elementary operations; None if some cannot be made of those."""
        return self._plan(width, children).program

    def identity_rows(self, n_inputs: int, children: int = 1) -> Array:
        """Tell where z holds the plain inputs.

        Parameters
        ----------
        n_inputs : int
            Number of inputs of all children together.
        children : int, default=1
            Number of children.

        Returns
        -------
        ndarray of int, length n_inputs
            For each input the first row of z that is this input unchanged, or -1.
        """
        width = _child_width(n_inputs, children)
        where = np.full((children, width, 1), -1)
        for term, rows in reversed(self._spans(width, children)):
            if term.keeps_inputs:
                view = term.select(where)
                view[...] = rows.start + np.arange(view.size).reshape(view.shape)
        return where.reshape(n_inputs)

    def _spans(self, width: int, children: int) -> tuple[tuple[Term, slice], ...]:
        """The terms and their rows of z."""
        return self._plan(width, children).spans

    def _plan(self, width: int, children: int) -> _Plan:
        """What to do for inputs of this shape; worked out once, because it is asked for often."""
        known: dict[tuple[int, int], _Plan] = self.__dict__.setdefault("_known", {})
        if (width, children) not in known:
            known[width, children] = _Plan.of(self.terms, width, children)
        return known[width, children]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_known"}


@dataclass(frozen=True, eq=False)
class _Plan:
    """The rows of an expansion for inputs of one shape.

    Sizes are asked for before anything is known to be in order, so everything that grows with them is worked out later.

    Attributes
    ----------
    width, children : shape of the input.
    size : number of rows.
    spans : terms and their rows.
    """

    width: int
    children: int
    size: int
    spans: tuple[tuple[Term, slice], ...]

    @classmethod
    def of(cls, terms: tuple[Term, ...], width: int, children: int) -> _Plan:
        spans, stop = [], 0
        for term in terms:
            start, stop = stop, stop + term.size(width, children)
            spans.append((term, slice(start, stop)))
        return cls(width, children, stop, tuple(spans))

    @cached_property
    def program(self) -> Program | None:
        """All rows as elementary operations; None if there are too many, or some cannot be made of those."""
        if self.size > MAX_PROGRAM:
            return None
        numbers = np.arange(self.children * self.width).reshape(self.children, self.width, 1)
        operations = []
        for term, rows in self.spans:
            made = term.operations(term.select(numbers)[:, :, 0])
            if made is None:
                return None
            for k, (what, i, j, exponent) in enumerate(made):
                operations.append((what, i, j, rows.start + (0 if what == NORMALIZE else k), exponent))
        return Program.of(operations)


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


def _check_shape(width: int, children: int) -> tuple[int, int]:
    width, children = index(width), index(children)
    if width < 1 or children < 1:
        raise ValueError(f"width and children must be at least 1, got width={width} and children={children}")
    return width, children


def _child_width(n_inputs: int, children: int) -> int:
    n_inputs, children = _check_shape(n_inputs, children)
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


def _check_like(array: Array, name: str, shape: tuple[int, int], X: Array) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != X.dtype:
        given = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} must be an ndarray of the dtype of X, {X.dtype}, got {given}")
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape} for X of shape {X.shape}, got {array.shape}")


def _quiet(term: Term) -> np.errstate:
    """Let inf and nan pass without warnings in our own arithmetic, but not in a user's function."""
    return np.errstate() if isinstance(term, Function) else np.errstate(all="ignore")
