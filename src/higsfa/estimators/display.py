"""Tables of the architecture of a network, as text and HTML; its progress, as a bar and for callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import numpy as np

from higsfa.core.fields import receptive_fields
from higsfa.training.layer import LayerPlan

LEGEND = (
    "nodes: grid of the layer; field, stride: in nodes of the layer below; sees: receptive field in pixels; "
    "inputs: of a node (> after PCA); expanded: size after the expansion; out: features per node"
)


def text_table(rows: list[dict[str, str]]) -> str:
    """Aligned columns and a legend."""
    table = [list(rows[0]), *([row[column] for column in rows[0]] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
    return "\n".join([*lines, f"({LEGEND})"])


def html_table(title: str, rows: list[dict[str, str]]) -> str:
    """The same in HTML."""
    cell = 'style="text-align:right;padding:2px 10px"'
    head = "".join(f"<th {cell}>{escape(column)}</th>" for column in rows[0])
    body = "".join("<tr>" + "".join(f"<td {cell}>{escape(v)}</td>" for v in row.values()) + "</tr>" for row in rows)
    return (
        f"<div><strong>{escape(title)}</strong><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<small>{escape(LEGEND)}</small></div>"
    )


def layer_rows(plans: list[LayerPlan], fitted: Any, shape: tuple[int, ...], cell: int) -> list[dict[str, str]]:
    """A row for each layer; `fitted` are the layers after training, or None; `cell` is the side of an input."""
    rows = []
    for number, (plan, (extent, _)) in enumerate(zip(plans, receptive_fields([p.fields for p in plans]), strict=True)):
        row = {
            "layer": str(number + 1),
            "nodes": by(plan.fields.shape) + (" shared" if plan.shared else ""),
            "field": by(plan.fields.field),
            "stride": by(plan.fields.stride),
            "sees": by(min(cell * size, length) for size, length in zip(extent, shape, strict=False)),
            "inputs": f"{plan.n_raw}" + (f">{plan.n_inputs}" if plan.pca else ""),
            "expanded": str(plan.frontend(np.zeros(plan.n_inputs)).n_expanded),
            "out": str(plan.n_components),
        }
        if fitted is not None:
            slow = fitted[number].delta_values[:, :3]
            row["mean J"] = f"{fitted[number].n_slow.mean():.2f}"
            row["mean Delta 1-3"] = " ".join(f"{value:.3f}" for value in np.nanmean(slow, axis=0))
        rows.append(row)
    return rows


class Shown:
    """A network that prints its layers."""

    def _rows(self: Any) -> list[dict[str, str]] | None:
        shape = self._shape()
        if shape is None:
            return None
        is_fitted, front = hasattr(self, "_trained"), self._shown_front(shape)
        plans = [layer.plan for layer in self._trained] if is_fitted else self._planned(shape)
        cell = 1 if front is None else front.plan(shape).cell
        return layer_rows(plans, self.layers_ if is_fitted else None, shape, cell)

    def _shown_front(self: Any, shape: tuple[int, ...]) -> Any:
        """That of training, whatever parameters are now; before, what they ask for."""
        return self.front_ if hasattr(self, "_trained") else self._front(shape)

    def _title(self: Any) -> str:
        shape, fitted = self._shape(), "fitted" if hasattr(self, "_trained") else "not fitted"
        if shape is None:
            return f"{type(self).__name__} for input of any shape, {fitted}"
        front = self._shown_front(shape)
        edges = "" if front is None else f", edges in {by(front.plan(shape).grid)} cells"
        return f"{type(self).__name__} for input {by(shape)}{edges}, {fitted}"

    def __str__(self) -> str:
        rows = self._rows()
        return repr(self) if rows is None else f"{self._title()}\n{text_table(rows)}"

    def _html_repr(self) -> str:
        """That of scikit-learn, with parameters, and the layers below it."""
        rows, parameters = self._rows(), super()._html_repr()  # type: ignore[misc]
        return str(parameters if rows is None else parameters + html_table(self._title(), rows))


def by(sizes: Any) -> str:
    """Sizes as in 3x4."""
    return "x".join(map(str, sizes))


OnLayer = Callable[[int, int], Callable[[int], None]]
"""A function that announces a layer and its number of steps, and returns one that counts steps."""
PARTS = 10
"""Tasks that callbacks see of a layer: a layer may have thousands of steps."""


@contextmanager
def told(network: Any, task: Any, show: OnLayer, prefix: str = "") -> Iterator[OnLayer]:
    """What `show` is told goes to callbacks as well, if `task` is that of a fit that has any."""
    if task is None:
        yield show
        return
    tasks = LayerTasks(network, task, prefix)

    def on_layer(layer: int, steps: int) -> Callable[[int], None]:
        shown, advance = show(layer, steps), tasks.begin(layer, steps)

        def on_node(done: int) -> None:
            shown(done)
            advance(done)

        return on_node

    yield on_layer
    tasks.end()


class LayerTasks:
    """Layers as tasks for callbacks of scikit-learn, each of at most `PARTS` parts; told by any thread."""

    def __init__(self, network: Any, task: Any, prefix: str) -> None:
        self.network, self.task, self.prefix = network, task, prefix
        self.lock, self.layer = threading.Lock(), None

    def begin(self, layer: int, steps: int) -> Callable[[int], None]:
        self.end()
        parts, self.n_steps, self.n_told = min(PARTS, steps), 0, 0
        own = self.layer = self.task.subcontext(f"{self.prefix}layer {layer + 1}", max_subtasks=parts)
        own.call_on_fit_task_begin(estimator=self.network)

        def advance(done: int) -> None:
            with self.lock:
                self.n_steps += done
                while self.n_told < min(parts, self.n_steps * parts // steps):
                    self.n_told += 1
                    part = own.subcontext("part")
                    part.call_on_fit_task_begin(estimator=self.network)
                    part.call_on_fit_task_end(estimator=self.network)

        return advance

    def end(self) -> None:
        if self.layer is not None:
            self.layer.call_on_fit_task_end(estimator=self.network)
        self.layer = None


@contextmanager
def progress(verbose: int, plans: list[LayerPlan], prefix: str = "") -> Iterator[OnLayer]:
    """A bar on the screen."""
    if not verbose:
        yield lambda layer, steps: lambda done: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    work = [_cost(plan) for plan in plans]
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    lock = threading.Lock()
    with Progress(*columns, refresh_per_second=4) as bar:
        whole = bar.add_task("network", total=sum(work))

        def on_layer(layer: int, steps: int) -> Callable[[int], None]:
            plan = plans[layer]
            shape = "x".join(map(str, plan.fields.shape))
            bar.update(
                whole,
                description=f"{prefix}layer {layer + 1} of {len(plans)} ({shape} nodes)",
                completed=sum(work[:layer]),
            )
            share = work[layer] / max(1, steps)

            def on_node(done: int) -> None:
                with lock:
                    bar.advance(whole, share * done)

            return on_node

        yield on_layer
        bar.update(whole, completed=sum(work), description=f"{len(plans)} layers")


def _cost(plan: LayerPlan) -> float:
    return float(plan.fields.n_nodes) * plan.frontend_size**2
