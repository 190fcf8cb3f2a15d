"""Nodes: from raw input to features and back, and how they are solved."""
