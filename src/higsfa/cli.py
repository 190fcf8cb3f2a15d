"""The command ``higsfa``: train, evaluate and look at networks without writing Python.

Heavy imports stand inside the commands, so that help and wrong usage answer at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from higsfa import _cli_experiments as about
from higsfa import _cli_use as use
from higsfa._cli_errors import explain, free_folder, signals_as_exceptions
from higsfa._cli_options import Force, Json
from higsfa._cli_screen import note_about_faces, print_json, say, stages

app = typer.Typer(
    name="higsfa",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: higsfa demo. Errors are one line; --debug, or HIGSFA_DEBUG=1, shows where they happened.",
)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1 or os.environ.get("HIGSFA_DEBUG", "") not in ("", "0")
    try:
        with signals_as_exceptions():
            code = app(arguments or ["--help"], prog_name="higsfa", standalone_mode=False)
            sys.stdout.flush()
    except BaseException as error:
        if isinstance(error, SystemExit):
            raise
        if debug:
            traceback.print_exc()
        line, code = explain(error, arguments)
        say(f"higsfa: {line}", style="red", stderr=True)
    sys.exit(code if isinstance(code, int) else 0)


def _version(asked: bool) -> None:
    if asked:
        from higsfa import __version__

        print(f"higsfa {__version__}")
        raise typer.Exit


@app.callback()
def higsfa(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error happened; may stand anywhere.")] = False,
) -> None:
    """Slow feature analysis: supervised, hierarchical, information preserving.

    Learn to estimate labels of pictures, such as age, from examples; see what was learned; use it on new pictures.
    """


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the results.")] = Path("demo"),
    force: Force = False,
    json: Json = False,
) -> None:
    """The whole story on synthetic faces, in at most two minutes.

    Draws faces that age, learns age, gender and race at once with HiGSFA, HGSFA, PCA and LDA, prints tables, and writes
    figures, report.html, explorer.html and the model.

    \b
    Example:
      higsfa demo
      higsfa demo --out somewhere --force
    """
    free_folder(out, force)
    from higsfa.demo import run_demo, tell

    with stages() as progress:
        results = run_demo(out, overwrite=force, progress=progress)
    if json:
        print_json(results)
    else:
        tell(results)
    note_about_faces(["age"])


for _panel, _commands in {
    "Experiments": (about.train, about.evaluate, about.compare, about.configs, about.info),
    "New pictures": (use.transform, use.predict, use.reconstruct, use.morph),
    "Pages": (use.report, use.explore),
}.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
