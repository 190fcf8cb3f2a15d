"""The folder of a real run, copies of it to be changed, and one browser for each module."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from browser import browsing


class Copy:
    """The content of a run folder, to be changed by a test before it is written."""

    def __init__(self, run):
        self.metrics = json.loads((run.folder / "metrics.json").read_text("utf-8"))
        self.examples = dict(run.examples)
        self.predictions = dict(run.predictions)
        self.environment = json.loads((run.folder / "environment.json").read_text())
        self.config = (run.folder / "config.toml").read_text("utf-8")

    def write(self, folder):
        from higsfa.experiments.run import write_table

        (folder / "metrics.json").write_text(json.dumps(self.metrics), encoding="utf-8")
        (folder / "environment.json").write_text(json.dumps(self.environment), encoding="utf-8")
        (folder / "config.toml").write_text(self.config, encoding="utf-8")
        if self.examples is not None:
            np.savez_compressed(folder / "examples.npz", **self.examples)
        if self.predictions is not None:
            write_table(folder / "predictions.csv", self.predictions)
        return folder


@pytest.fixture
def changed(real):
    return Copy(real.run)


@pytest.fixture(scope="session")
def full_report(real, tmp_path_factory):
    from higsfa.report import write_report

    return write_report(real.folder, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def browser():
    with browsing() as found:
        yield found


@pytest.fixture
def painted(monkeypatch):
    """Figures that are painted but not written: a function that gives the canvas of a figure."""
    from matplotlib.figure import Figure as Canvas

    from higsfa.report import figures

    made = {}

    def draw(name, paint, height=3.0):
        canvas = Canvas()
        paint(canvas)
        made[name] = canvas
        return "<svg></svg>"

    monkeypatch.setattr(figures, "draw", draw)

    def painted(figure, *arguments):
        found = figure(*arguments)
        canvas = made[found.title]
        lines = {line.get_label(): line for axes in canvas.axes for line in axes.lines}
        return SimpleNamespace(figure=found, canvas=canvas, axes=canvas.axes, lines=lines)

    return painted
