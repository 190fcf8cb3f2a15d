"""Nodes with a kernel: their points, taken from samples, and variables that all vary about as much.

What a kernel says about a sample lies in its products with points. These depend on each other: solved for as they are,
with a shrinkage that takes from each as much as it varies, they are not what the kernel means. So a node is trained on
as many sums of them whose products are those of the kernel (Nystroem's features), and the weights of the products
themselves are written out afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from higsfa.core.expansion.expansion import Expansion
from higsfa.core.expansion.kernel import Kernel
from higsfa.core.expansion.terms import Term
from higsfa.core.native.tile import Raw
from higsfa.core.node.frontend import Frontend
from higsfa.core.node.node import Node

Floats = NDArray[np.float64]

LEAST = 1e-9
"""Of the largest variance, along an axis that points span."""


@dataclass(frozen=True, eq=False)
class Spanned(Term):
    """Sums of the rows of a term, for as long as a node is trained."""

    base: Term
    weights: Floats  # (sums, rows of the term)

    @property
    def label(self) -> str:
        return f"<{len(self.weights)} sums of {self.base}>"

    def n_rows(self, children: int, selected: int) -> int:
        return len(self.weights)

    def fill(self, S: NDArray[Any], out: NDArray[Any]) -> None:
        Z = np.empty((self.weights.shape[1], S.shape[2]), S.dtype)
        self.base.fill(S, Z)
        np.matmul(self.weights.astype(S.dtype, copy=False), Z, out=out)

    def pull_back(self, S: NDArray[Any], G: NDArray[Any], dS: NDArray[Any]) -> None:
        self.base.pull_back(S, self.weights.T.astype(S.dtype, copy=False) @ G, dS)


def with_points(frontend: Frontend, raw: Raw) -> Frontend:
    """The frontend of a node in training, whose kernel has these samples as points.

    Its variables are a symmetric root of the kernel of the points, one for each of them, so that all vary about as
    much. If there are more rows than points, the others are not used.
    """
    (kernel,) = frontend.expansion.terms
    assert isinstance(kernel, Kernel)
    X = frontend.inputs(raw, np.dtype(np.float64), clip=False)
    points = np.zeros((kernel.n, frontend.n_inputs))
    points[: X.shape[1]] = X.T
    kernel = replace(kernel, points=points, width=float(np.einsum("ij,ij->", X, X)) / X.shape[1] or 1.0)
    K = np.empty((kernel.n, X.shape[1]))
    kernel.fill(X[None], K)
    values, axes = scipy.linalg.eigh(K[: X.shape[1]])
    good = values > LEAST * values[-1]
    weights = np.zeros((X.shape[1], kernel.n))
    weights[:, : X.shape[1]] = (axes[:, good] / np.sqrt(values[good])) @ axes[:, good].T
    return replace(frontend, expansion=Expansion((Spanned(kernel, weights),)))


def written_out(node: Node) -> Node:
    """The node with weights for the kernel itself, if it was trained on sums of its rows."""
    term = node.frontend.expansion.terms[0]
    if not isinstance(term, Spanned):
        return node
    frontend = replace(node.frontend, expansion=Expansion((term.base,)))
    return replace(node, frontend=frontend, slow=node.slow @ term.weights)
