"""A progress bar for training networks, silent unless asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from higsfa.training.layer import LayerPlan

OnLayer = Callable[[int, int], Callable[[int], None]]


@contextmanager
def progress(verbose: int, plans: list[LayerPlan]) -> Iterator[OnLayer]:
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
                whole, description=f"layer {layer + 1} of {len(plans)} ({shape} nodes)", completed=sum(work[:layer])
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
