"""Trained models for other programs: ONNX graphs, and modules of torch."""

from higsfa.export.onnx_graph import to_onnx
from higsfa.export.torch_module import to_torch

__all__ = ["to_onnx", "to_torch"]
