"""Trained models for other programs: ONNX graphs, and modules of torch."""

from higsfa.export.onnx_graph import to_onnx

__all__ = ["to_onnx"]
