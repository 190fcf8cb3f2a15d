"""The network for photographs fits the cells of oriented edges, and nothing else."""

import re

import numpy as np
import pytest

from higsfa import HiGSFA, presets
from higsfa.graphs import ClusteredGraph
from higsfa.images import oriented_edges


@pytest.mark.parametrize("directions", [1, 8, 12])
def test_the_plan_ends_in_one_node_that_sees_all_cells(directions):
    shape = oriented_edges(np.zeros((1, 64, 64), np.uint8), directions=directions).shape[1:]
    rows = [line.split() for line in str(presets.photographs(shape)).splitlines()[2:7]]
    assert [row[1] for row in rows] == ["7x7", "3x7", "3x3", "1x3", "1x1"]
    assert [row[-1] for row in rows] == ["60", "90", "110", "130", "150"]
    assert rows[-1][4] == "16x16"


def test_parameters_reach_the_network():
    graph = ClusteredGraph("gender")
    net = presets.photographs(graph=graph, n_jobs=2)
    assert isinstance(net, HiGSFA)
    assert (net.graph, net.n_jobs, net.input_shape) == (graph, 2, (16, 16, 13))
    assert presets.photographs().graph == HiGSFA([]).graph


@pytest.mark.parametrize("shape", [(12, 12, 13), (16, 24, 13), (16, 16), (16, 16, 1), (64, 64), (2, 16, 16, 13)])
def test_other_shapes_are_sent_to_the_pyramid(shape):
    with pytest.raises(ValueError, match=re.escape(f"got {shape}; use presets.pyramid")):
        presets.photographs(shape)
