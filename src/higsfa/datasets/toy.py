"""The toy signals of the paper's section on information loss, and the experiment with them.

Four independent signals have values -1 and 1: s1 is slower than s2, s2 slower than s3, and n is noise. In the input
(s2, s1 n, s3, n) the slowest feature hides in a product, x2 x4 = s1. A network whose first layer sees (x1, x2) and
(x3, x4) separately and keeps only the slowest feature of each loses it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from higsfa.estimators import ISFA, SFA


def make_toy(
    n_samples: int = 10_000, switch_rates: tuple[float, float, float] = (0.01, 0.05, 0.2), random_state: Any = 0
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Draw the toy signals.

    Parameters
    ----------
    n_samples : int, default=10000
    switch_rates : three floats, default=(0.01, 0.05, 0.2)
        Probability per step that s1, s2, s3 change sign. Delta of a signal is 4 times its rate. Noise has rate 0.5.
    random_state : int, RandomState or None, default=0

    Returns
    -------
    X : array of shape (n_samples, 4)
        The input (s2, s1 n, s3, n).
    signals : dict of arrays
        ``s1``, ``s2``, ``s3`` and ``n``.

    Examples
    --------
    >>> X, signals = make_toy(1000)
    >>> X.shape, bool(np.all(X[:, 1] * X[:, 3] == signals["s1"]))
    ((1000, 4), True)
    """
    rng = check_random_state(random_state)
    signals = {}
    for name, rate in zip(("s1", "s2", "s3", "n"), (*switch_rates, 0.5), strict=True):
        switches = rng.uniform(size=n_samples) < rate
        signals[name] = np.where(np.cumsum(switches) % 2 == 0, 1.0, -1.0)
    s1, s2, s3, n = signals.values()
    return np.column_stack([s2, s1 * n, s3, n]), signals


def run_toy(n_samples: int = 10_000, random_state: Any = 0) -> list[tuple[str, int, float, float, float]]:
    """Train three networks, one with information preservation.

    Rows: name, features kept by each bottom node, Delta of the top feature, its correlation with s1 and with s2.
    """
    X, signals = make_toy(n_samples, random_state=random_state)
    rows = []
    quadratic = "identity | quadratic"
    for name, estimator, width in (("quadratic SFA", SFA, 1), ("quadratic SFA", SFA, 2), ("quadratic iSFA", ISFA, 2)):
        bottom = [estimator(n_components=width, expansion=quadratic).fit_transform(X[:, i : i + 2]) for i in (0, 2)]
        top = SFA(n_components=1, expansion=quadratic)
        feature = top.fit_transform(np.hstack(bottom))[:, 0]
        with_s1, with_s2 = (float(abs(np.corrcoef(feature, signals[s])[0, 1])) for s in ("s1", "s2"))
        rows.append((name, width, float(top.delta_values_[0]), with_s1, with_s2))
    return rows


def main() -> None:
    """Print the experiment as a table."""
    from rich.console import Console
    from rich.table import Table

    _, signals = make_toy()
    console = Console(width=100)
    console.print("\n[bold]Unnecessary information loss, and how information preservation mends it[/bold]")
    console.print(
        "Input (s2, s1*n, s3, n) with binary signals, s1 slowest, n noise. The slowest feature is x2*x4 = s1.\n"
        "Two bottom nodes see two inputs each; the top node sees what they keep.\n"
    )
    table = Table(box=None, pad_edge=False)
    for column in ("two-layer network", "kept", "Delta", "|corr| s1", "|corr| s2", "its slowest feature"):
        left = column in ("two-layer network", "its slowest feature")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for name, kept, delta, with_s1, with_s2 in run_toy():
        found = "[bold green]s1, the slowest signal[/bold green]" if with_s1 > 0.99 else "s2; s1 was lost on the way"
        table.add_row(name, f"{kept} of 2", f"{delta:.3f}", f"{with_s1:.3f}", f"{with_s2:.3f}", found)
    console.print(table)
    deltas = ", ".join(f"{name} {np.mean(np.diff(signal) ** 2):.3f}" for name, signal in signals.items())
    console.print(f"\nDelta of the signals: {deltas}\n")
