"""Tables of the architecture of a network, as text and HTML, and a progress bar."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

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


@contextmanager
def progress(
    verbose: int, plans: list[LayerPlan], prefix: str = ""
) -> Iterator[Callable[[int, int], Callable[[int], None]]]:
    """Yields a function that announces a layer and its number of steps, and returns one that counts steps."""
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
