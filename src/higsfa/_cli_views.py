"""What a run's decoder shows: the explorer, and pictures with other labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from higsfa._cli_decoder import RunData

EXPLORED = 500
"""Test pictures that the explorer takes its examples and its statistics from."""


def explorer_page(run: Any, data: RunData, out: Path) -> Path:
    """Write the explorer of a run, with test pictures as examples."""
    from higsfa.report.explorer import write_explorer

    test, decoder = data.fold.test, data.decoder
    rows = np.unique(np.linspace(0, len(test) - 1, min(len(test), EXPLORED)).astype(np.intp))
    labels = {name: values[rows] for name, values in test.labels.items()}
    data.progress.stage("drawing the explorer", None)
    title = f"Explore: {run.metrics['title']}"
    return write_explorer(
        out,
        run.network,
        run.head,
        test.source[rows],
        decoder=decoder,
        labels=labels,
        title=title,
        value_range=run.pixel_range,
    )


def morphed(
    run: Any, data: RunData, photo: NDArray[Any], label: str, values: Sequence[Any], strength: float = 1.0
) -> NDArray[Any]:
    """One picture with other values of a label: (n_values, height, width), in the type of the picture."""
    from higsfa.reconstruction import morph

    wanted = {label: list(values)}
    return morph(run.network, run.head, photo, wanted, decoder=data.decoder, strength=strength)
