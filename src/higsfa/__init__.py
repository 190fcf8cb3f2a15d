"""Hierarchical information-preserving graph-based slow feature analysis."""
