"""The command ``higsfa``: train, evaluate and look at networks without writing Python."""

import os
import sys
import traceback

from higsfa.cli import terminal
from higsfa.cli.commands import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line and end the process with its exit code."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1 or os.environ.get("HIGSFA_DEBUG", "") not in ("", "0")
    try:
        with terminal.signals_as_exceptions():
            code = app(arguments or ["--help"], prog_name="higsfa", standalone_mode=False)
            sys.stdout.flush()
    except SystemExit:
        raise
    except BaseException as error:
        if debug:
            traceback.print_exc()
        line, code = terminal.explain(error, arguments)
        terminal.say(f"higsfa: {line}", style="red", stderr=True)
    sys.exit(code if isinstance(code, int) else 0)
