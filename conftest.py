"""Doctests of modules that need a package of no extra are left out where it is not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["src/higsfa/export/torch_module.py"]
