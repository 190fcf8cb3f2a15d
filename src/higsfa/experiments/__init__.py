"""Experiments described by a TOML file: data, network, head and protocol in, a folder with all results out.

>>> from higsfa.experiments import load_config, shipped_configs
>>> "digits" in shipped_configs()
True
>>> load_config("digits").data.kind
'digits'
"""

from higsfa.experiments.config import Config
from higsfa.experiments.errors import ExperimentError
from higsfa.experiments.reading import load_config, shipped_configs, with_paths, with_values
from higsfa.experiments.reporting import Progress
from higsfa.experiments.run_folder import Run, open_run
from higsfa.experiments.running import train
from higsfa.experiments.using import compare, evaluate, read_pictures

__all__ = [
    "Config",
    "ExperimentError",
    "Progress",
    "Run",
    "compare",
    "evaluate",
    "load_config",
    "open_run",
    "read_pictures",
    "shipped_configs",
    "train",
    "with_paths",
    "with_values",
]
