"""The command ``higsfa``: train, evaluate and look at networks without writing Python."""

from higsfa.cli.commands import app, main

__all__ = ["app", "main"]
