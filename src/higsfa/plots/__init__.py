"""Figures. Needs matplotlib: ``pip install higsfa[plots]``."""

from higsfa.plots.deltas import plot_delta_values

__all__ = ["plot_delta_values"]
