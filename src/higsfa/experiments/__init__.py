"""Experiments described by a TOML file: data, network, head and protocol in, a folder with all results out.

>>> from higsfa.experiments import load_config, shipped_configs
>>> "digits" in shipped_configs()
True
>>> load_config("digits").data.kind
'digits'
"""

from higsfa.experiments.config import Config
from higsfa.experiments.interface import (
    ExperimentError,
    Progress,
    load_config,
    shipped_configs,
    with_paths,
    with_values,
)
from higsfa.experiments.run import train
from higsfa.experiments.tuning import Tuned, tune
from higsfa.experiments.use import Run, compare

__all__ = [
    "Config",
    "ExperimentError",
    "Progress",
    "Run",
    "Tuned",
    "compare",
    "load_config",
    "shipped_configs",
    "train",
    "tune",
    "with_paths",
    "with_values",
]
