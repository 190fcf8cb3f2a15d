"""Arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from higsfa._cli_errors import existing, wrong_usage

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that higsfa train wrote.")]
Pictures = Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Picture files, or folders of them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", metavar="N", help="Threads; all cores by default.")]
Eyes = Annotated[
    Path | None,
    typer.Option("--eyes", metavar="TABLE", help="Eyes in the pictures, a .csv file with name, x, y, x, y."),
]
Cropped = Annotated[
    bool, typer.Option("--cropped", help="The pictures are cut by the eyes already, as those of training were.")
]
DataFolder = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where the data of the config lie on this machine.")
]


def opened_run(path: Path) -> Any:
    """A run that a command was given."""
    existing(path, "run folder")
    from higsfa.experiments import open_run

    with wrong_usage():
        return open_run(path)
