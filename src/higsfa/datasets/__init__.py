"""Data sets drawn by our own code, and readers for what users have on disk."""

from higsfa.datasets.toy import make_toy

__all__ = ["make_toy"]
