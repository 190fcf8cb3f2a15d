"""The network for photographs describes pictures of any size by their edges."""

import pytest

from higsfa import HGSFA, HiGSFA, OrientedEdges, presets
from higsfa.graphs import ClusteredGraph


@pytest.mark.parametrize("shape", [(64, 64), (96, 96, 3), (17, 40), (30, 20, 1), (128, 64, 3), (5, 5)])
def test_the_plan_ends_in_one_node_that_sees_the_whole_picture(shape):
    net = presets.photographs(shape)
    assert isinstance(net.front, OrientedEdges)
    rows = [line.split() for line in str(net).splitlines()[2:-1]]
    assert rows[-1][1] == "1x1"
    height, width = map(int, rows[-1][4].split("x"))
    cell = net.front.plan(shape).cell
    assert 0 <= height - shape[0] < cell
    assert 0 <= width - shape[1] < cell


def test_more_channels_give_wider_layers():
    assert (
        presets.photographs((64, 64)).layers[0].n_components
        > presets.pyramid((16, 16), front=None).layers[0].n_components
    )


def test_parameters_reach_the_network():
    graph = ClusteredGraph("gender")
    net = presets.photographs(graph=graph, n_jobs=2, n_components=30, layer_params={"shrinkage": 0.5}, network=HGSFA)
    assert type(net) is HGSFA
    assert (net.graph, net.n_jobs, net.input_shape) == (graph, 2, (64, 64))
    assert net.layers[-1].n_components == 30
    assert {layer.shrinkage for layer in net.layers} == {0.5}
    assert presets.photographs().graph == HiGSFA([]).graph


def test_a_front_end_can_be_given_or_left_out():
    assert presets.pyramid((64, 64)).front.plan((64, 64)).cell == 4
    assert presets.pyramid((64, 64), front=OrientedEdges(cell=8)).front.cell == 8
    assert presets.pyramid((64, 64), front=None).front is None
    assert presets.pyramid((12, 64)).front is None
    assert presets.pyramid((64, 64, 8)).front is None
