"""Networks as objects: designs, tables, parameters, names, budgets. What they compute is tested elsewhere."""

import re

import numpy as np
import pytest

from higsfa import HGSFA, HSFA, HiGSFA, HiSFA, Layer
from higsfa.core.expansion.expansion import parse_expansion
from higsfa.core.fields import Fields
from higsfa.estimators import network as _network
from higsfa.estimators.display import LEGEND, html_table, text_table
from higsfa.estimators.layer import design_pyramid
from higsfa.estimators.network import progress
from higsfa.graphs import SerialGraph
from higsfa.training.budget import Workload, make_budget

N = 120
rng = np.random.default_rng(0)
AGE = rng.uniform(0, 1, N)
IMAGES = rng.standard_normal((N, 4, 6)) + AGE[:, None, None] * np.linspace(0, 2, 24).reshape(4, 6)
LAYERS = [
    Layer((2, 2), n_components=3, n_slow=1, expansion="identity | quadratic"),
    Layer((2, 3), n_components=4, n_slow=2),
]


def fitted(kind=HiGSFA, layers=LAYERS, **given):
    return kind(layers, graph=SerialGraph(n_groups=6), **given).fit(IMAGES, AGE)


# --- layers ---------------------------------------------------------------------------------------------------------


def test_the_plan_of_a_layer_holds_its_parameters():
    given = dict(
        n_components=np.int64(7),
        expansion="identity | power0.8",
        pca=5,
        n_slow=2,
        delta_threshold=1,
        scaling="qr",
        min_scale=0.5,
        shared=True,
        shrinkage=1,
        weighted=True,
    )
    plan = Layer((2, 3), (1, 2), **given).plan(1, (4, 7), 3, preserve=True, clip_range=False)
    assert plan.fields == Fields((4, 7), (2, 3), (1, 2), False)
    assert (plan.width, plan.pca, plan.shared, plan.clip_range) == (3, 5, True, False)
    assert plan.expansion == parse_expansion("identity | power0.8")
    options = plan.options
    assert (options.n_components, options.preserve, options.n_slow) == (7, True, 2)
    assert (options.delta_threshold, options.scaling, options.min_scale) == (1.0, "qr", 0.5)
    assert (options.weighted, options.shrinkage) == (True, 1.0)
    plain = Layer(2).plan(1, (4, 6), 1, preserve=False, clip_range=True)
    assert plain.fields == Fields((4, 6), (2, 2), (2, 2), False)
    assert (plain.pca, plain.shared, plain.clip_range, plain.options.preserve) == (None, False, True, False)
    assert Layer(3, pad=True).plan(1, (4,), 1, preserve=False, clip_range=True).fields.shape == (2,)
    assert (Layer(2).n_dimensions, Layer((2,)).n_dimensions, Layer((2, 3)).n_dimensions) == (1, 1, 2)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Layer((2, 2, 2)), r"layer 3: field \(2, 2, 2\) has 3 dimensions, the grid below has 2"),
        (Layer((2, 2), (1,)), r"layer 3: stride \(1,\) has 1 dimensions, the grid below has 2"),
        (Layer((2, 0)), r"layer 3: field \(2, 0\) must hold integers of at least 1"),
        (Layer((2, 1.5)), r"layer 3: field \(2, 1.5\) must hold integers of at least 1"),
        (Layer((2, 2), (0, 1)), r"layer 3: stride \(0, 1\) must hold integers of at least 1"),
        (Layer((2, 2), expansion="identity[:3]"), "layer 3: .*identity"),
        (Layer((2, 2), n_components=0), "'n_components' parameter of layer 3"),
    ],
)
def test_a_layer_that_does_not_fit_is_named_by_its_number(layer, words):
    with pytest.raises(ValueError, match=words):
        layer.plan(3, (4, 4), 2, preserve=True, clip_range=True)


# --- networks of one's own and designed ones ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "field", "grid", "width"),
    [
        ((12,), 3, (12,), 1),
        ((12,), (3,), (12,), 1),
        ((12, 2), (3,), (12,), 2),
        ((12, 6), 3, (12, 6), 1),
        ((12, 6, 2), 3, (12, 6), 2),
        ((12, 6), (3, 3), (12, 6), 1),
        ((12, 6, 2), (3, 3), (12, 6), 2),
        ((12, 6, 3), (3, 3, 3), (12, 6, 3), 1),
        ((12, 6, 3, 2), (3, 3, 3), (12, 6, 3), 2),
    ],
)
def test_the_last_dimension_is_channels_where_the_field_has_one_less(shape, field, grid, width):
    (plan,) = HiGSFA([Layer(field)])._planned(shape)
    assert (plan.fields.grid, plan.width) == (grid, width)


@pytest.mark.parametrize(
    ("shape", "field"), [((8, 8), (2, 2, 2)), ((8, 8, 3), (2,)), ((2,) * 5, (2,) * 4), ((8,), (2, 2))]
)
def test_shapes_that_do_not_go_with_the_fields_are_refused(shape, field):
    with pytest.raises(ValueError, match=f"input_shape {re.escape(str(shape))} does not go with fields of"):
        HiGSFA([Layer(field)])._planned(shape)


def test_networks_plan_their_layers_one_on_top_of_the_other():
    first, second = HiGSFA(LAYERS, clip_range=False)._planned((4, 6))
    assert (first.fields.shape, second.fields.grid, second.width, second.fields.shape) == ((2, 3), (2, 3), 3, (1, 1))
    assert not first.clip_range
    for kind, preserve in ((HiGSFA, True), (HiSFA, True), (HGSFA, False), (HSFA, False)):
        assert kind(LAYERS)._planned((4, 6))[0].options.preserve is preserve
        assert kind(LAYERS)._planned((4, 6))[0].clip_range is True
    for layers, error, words in (
        ([], ValueError, "at least one layer"),
        ([*LAYERS, "top"], TypeError, "entry 3 must be a Layer, got str"),
    ):
        with pytest.raises(error, match=words):
            HiGSFA(layers)._planned((4, 6))
    assert len(HiGSFA(front=None)._planned((28, 28))) == len(design_pyramid((28, 28)))
    assert len(HiGSFA()._planned((28, 28))) == len(design_pyramid((10, 10, 13), n_dimensions=2))


BOTTOM = {1: (16, 8), 2: (6, 3), 3: (4, 2)}


@pytest.mark.parametrize(
    "shape", [(100,), (5,), (28, 28), (28, 28, 3), (96, 40), (3, 20), (9, 9, 9), (1, 1), (40, 7, 5)]
)
@pytest.mark.parametrize("n_components", [5, 60])
def test_designed_networks_merge_neighbours_and_grow_by_about_a_third(shape, n_components):
    layers = design_pyramid(shape, n_components)
    n = 2 if len(shape) == 3 and shape[2] <= 4 else len(shape)
    grid, width = shape[:n], shape[n] if len(shape) > n else 1
    size, step = BOTTOM[n]
    bottom = layers[0]
    assert bottom.field == tuple(min(size, length) for length in grid)
    assert bottom.stride == tuple(min(step, length) for length in grid)
    n_raw = width * int(np.prod(bottom.field))
    assert bottom.pca == (min(20 * width, round(0.6 * n_raw)) if n_raw > 16 else None)
    inputs = bottom.pca or n_raw
    assert bottom.n_components == min(18 if n_raw > 16 else 12, n_components, inputs)
    assert bottom.n_slow == min(3, bottom.n_components)
    assert all(layer.pad for layer in layers)
    quadratic = f" | normalized_quadratic{f'[:{min(10, inputs)}]' if bottom.pca else ''}" if inputs > 1 else ""
    assert bottom.expansion == "identity | power0.8" + quadratic
    grid, width = Fields(grid, bottom.field, bottom.stride, True).shape, bottom.n_components
    for number, layer in enumerate(layers[1:], 1):
        longest = max(grid)
        axis = grid.index(longest)
        assert layer.field == tuple(min(3, longest) if d == axis else 1 for d in range(n))
        assert layer.stride == tuple(2 if d == axis else 1 for d in range(n))
        grid = Fields(grid, layer.field, layer.stride, True).shape
        grown = n_components if max(grid) == 1 else min(n_components, max(width + 1, round(1.35 * width)))
        assert layer.n_components == min(grown, min(3, longest) * width)
        assert layer.n_slow == (min(4, layer.n_components) if number == 1 else None)
        joined = f" | normalized_quadratic[:{min(4, width)}]" if width > 1 else ""
        assert layer.expansion == "identity | power0.8" + joined
        width = layer.n_components
    assert set(grid) == {1}


def test_designs_take_options_and_dimensions():
    layers = design_pyramid(40, 10, scaling="qr", shrinkage=0.1)
    assert all((layer.scaling, layer.shrinkage) == ("qr", 0.1) for layer in layers)
    assert design_pyramid(40)[0].field == (16,)
    assert design_pyramid((40, 4), n_dimensions=1)[0].field == (16,)
    assert design_pyramid((20, 20, 4))[0].field == (6, 6)
    assert design_pyramid((20, 20, 5))[0].field == (4, 4, 4)
    overruled = design_pyramid((28, 28), n_dimensions=2, n_slow=1, expansion="identity", pca=None)
    assert all((layer.n_slow, layer.expansion, layer.pca) == (1, "identity", None) for layer in overruled)
    for shape, n_dimensions in (((), None), ((2,) * 5, None), ((8, 8), 3), ((8,), 2), ((8, 8, 8), 1), ((8,), 0)):
        with pytest.raises(ValueError, match="must have 1 to 3 dimensions"):
            design_pyramid(shape, n_dimensions=n_dimensions)


# --- parameters -----------------------------------------------------------------------------------------------------


def test_parameters_of_layers_have_numbers():
    network = HiGSFA([Layer((2, 2)), Layer((2, 3))], n_jobs=3)
    deep, flat = network.get_params(), network.get_params(deep=False)
    assert deep["layer1"] is network.layers[0]
    assert deep["layer2__field"] == (2, 3)
    assert {key for key in deep if "__" not in key} - set(flat) == {"layer1", "layer2"}
    network.set_params(layer2=Layer((2, 1)), layer1__pca=2, n_jobs=1, layers=[Layer((2, 2)), Layer((4, 4))])
    assert [layer.field for layer in network.layers] == [(2, 2), (2, 1)]
    assert (network.layers[0].pca, network.n_jobs) == (2, 1)
    for key in ("layer0", "layer3", "layer3__pca"):
        with pytest.raises(ValueError, match=f"Invalid parameter '{key}': the network has 2 layers"):
            network.set_params(**{key: 1})
    with pytest.raises(ValueError, match="the network has 0 layers"):
        HiGSFA().set_params(layer1__pca=2)
    assert "layer1" not in HiGSFA([1]).get_params()
    assert "layer1" not in HiGSFA().get_params()


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("1 B", 1),
        ("2kB", 2000),
        ("2 KiB", 2048),
        ("1.5MB", 1_500_000),
        (" 3 MiB ", 3 * 2**20),
        ("2 GB", 2 * 10**9),
        ("2 G", 2 * 10**9),
        ("1 TiB", 2**40),
        (np.int64(77), 77),
    ],
)
def test_memory_is_read_as_people_write_it(text, n_bytes):
    assert _network.parse_memory(text) == n_bytes


@pytest.mark.parametrize("text", ["", "GiB", "2 PB", "-1 MB", "2 GiBs", "1,5 GB"])
def test_memory_that_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match=re.escape(f"memory_limit={text!r} is not a size")):
        _network.parse_memory(text)


def test_half_of_the_free_memory_is_taken_but_no_less_than_a_quarter_gibibyte(monkeypatch):
    sizes = {"SC_AVPHYS_PAGES": 2**20, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(_network.os, "sysconf", sizes.__getitem__)
    assert _network.parse_memory(None) == 2**31
    sizes["SC_AVPHYS_PAGES"] = 2**10
    assert _network.parse_memory(None) == 2**28

    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(_network.os, "sysconf", unknown)
    assert _network.parse_memory(None) == 2**31


def test_threads_are_counted_from_the_cores(monkeypatch):
    monkeypatch.setattr(_network.os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    counted = {n_jobs: HiGSFA(n_jobs=n_jobs)._n_jobs() for n_jobs in (None, 1, 4, -1, -2, -6, -9)}
    assert counted == {None: 1, 1: 1, 4: 4, -1: 6, -2: 5, -6: 1, -9: 1}
    with pytest.raises(ValueError, match="n_jobs == 0"):
        HiGSFA(n_jobs=0)._n_jobs()


def test_the_estimate_is_the_budget_of_the_fit(tmp_path):
    network = HiGSFA(LAYERS, input_shape=(4, 6), n_jobs=2, memory_limit="64 MiB", spill=False)
    plans = network._planned((4, 6))
    for dtype, itemsize, products in ((np.uint8, 1, 4), (np.float64, 8, 8), (np.float32, 4, 4)):
        found = network.estimate_cost(50_000, dtype=dtype, n_cells=2)
        assert found == make_budget(Workload(tuple(plans), 50_000, 24, itemsize, products, 2, 64, 4, 2), 2**26)
    assert network.estimate_cost(50_000) == network.estimate_cost(50_000, input_shape=(4, 6), dtype=np.uint8, n_cells=3)
    assert network.estimate_cost(16_384).memory <= network.estimate_cost(16_385).memory
    with pytest.raises(ValueError, match="input_shape: pass it"):
        HiGSFA(LAYERS).estimate_cost(100)
    assert HiGSFA(LAYERS).estimate_cost(100, input_shape=[4, 6]).work == network.estimate_cost(100).work


# --- shapes of input ------------------------------------------------------------------------------------------------


def test_samples_come_as_images_or_as_rows():
    network = fitted()
    Y = network.transform(IMAGES)
    assert network.input_shape_ == (4, 6)
    rows = HiGSFA(LAYERS, graph=SerialGraph(n_groups=6), input_shape=(4, 6)).fit(IMAGES.reshape(N, 24), AGE)
    np.testing.assert_array_equal(rows.transform(IMAGES.reshape(N, 24)), Y)
    np.testing.assert_array_equal(rows.transform(IMAGES), Y)
    np.testing.assert_array_equal(network.transform(IMAGES.reshape(N, 24)), Y)
    for shape in ((6, 4), (4, 3, 2)):
        with pytest.raises(ValueError, match=r"samples have shape .*, but the network was trained for \(4, 6\)"):
            network.transform(IMAGES.reshape(N, *shape))
        with pytest.raises(ValueError, match=r"input_shape=\(4, 6\) has 24 values, but samples have shape"):
            rows.fit(IMAGES.reshape(N, *shape), AGE)
    with pytest.raises(ValueError, match="has 12 values, but samples have shape"):
        rows.set_params(input_shape=(3, 4)).fit(IMAGES.reshape(N, 24), AGE)
    by_number = HiGSFA([Layer(12), Layer(2)], graph=SerialGraph(n_groups=6), input_shape=24)
    assert by_number.fit(IMAGES.reshape(N, 24), AGE).input_shape_ == (24,)
    with pytest.raises(ValueError, match="graph is for 3 samples but X has 120"):
        network.fit(IMAGES, AGE, graph=SerialGraph(n_groups=2).build([1.0, 2.0, 3.0]))


def test_features_and_reconstructions_do_not_depend_on_how_many_there_are():
    network = fitted()
    many = np.tile(IMAGES, (12, 1, 1))  # more than are looked at at once
    Y = network.transform(IMAGES)
    np.testing.assert_allclose(network.transform(many), np.tile(Y, (12, 1)), atol=1e-12)
    X = network.inverse_transform(Y)
    assert X.shape == IMAGES.shape
    np.testing.assert_allclose(network.inverse_transform(np.tile(Y, (12, 1))), np.tile(X, (12, 1, 1)), atol=1e-12)
    out = np.zeros((N, 4), dtype=np.float32)
    assert network.transform(IMAGES, out=out) is out
    np.testing.assert_allclose(out, Y, atol=1e-5)
    with pytest.raises(ValueError, match="Y has 3 features, but this network makes 4"):
        network.inverse_transform(Y[:, :3])
    single = fitted().transform(IMAGES.astype(np.float32))
    assert single.dtype == np.float32
    assert network.inverse_transform(single).dtype == np.float32


# --- what it says ---------------------------------------------------------------------------------------------------


def test_fitted_networks_tell_what_they_found():
    network = fitted()
    assert (network.n_components_, network.n_slow_) == (4, 2)
    assert network.get_feature_names_out().tolist() == ["higsfa_slow0", "higsfa_slow1", "higsfa_rec0", "higsfa_rec1"]
    np.testing.assert_array_equal(network.delta_values_, network.layers_[1].delta_values[0])
    first = network.layers_[0]
    assert (first.shape, first.n_expanded, len(first.nodes)) == ((2, 3), 14, 6)
    assert first.n_slow.tolist() == [1] * 6
    assert first.rank.tolist() == [14] * 6
    assert repr(first) == (
        f"<layer of 2x3 nodes: expanded 14, mean J 1.00, mean Delta_1 {np.mean(first.delta_values[:, 0]):.3f}>"
    )
    bottom = fitted(layers=LAYERS[:1])
    assert (bottom.n_components_, bottom.n_slow_, bottom.delta_values_) == (18, None, None)
    assert bottom.get_feature_names_out().tolist()[:4] == [
        f"higsfa_{name}" for name in ("node0_slow0", "node0_rec0", "node0_rec1", "node1_slow0")
    ]
    shared = fitted(layers=[Layer((2, 2), n_components=3, shared=True), Layer((2, 3))])
    assert len(shared.layers_[0].nodes) == 1


def test_nodes_with_fewer_delta_values_than_others_have_nan():
    images = IMAGES.copy()
    images[:, :2, :2] = 0.0
    layer = HiGSFA([Layer((2, 2), n_components=3, n_slow=2)], graph=SerialGraph(n_groups=6)).fit(images, AGE).layers_[0]
    assert layer.rank[0] == 0
    assert np.isnan(layer.delta_values[0]).all()
    assert np.isfinite(layer.delta_values[1:, :2]).all()
    assert "nan" not in repr(layer)


def test_tables_show_every_layer():
    network = HiGSFA([Layer((2, 2), n_components=3, pca=2), Layer((2, 3), n_components=4, shared=True)])
    assert str(network) == repr(network)
    assert network._title() == "HiGSFA for input of any shape, not fitted"
    network.set_params(input_shape=(4, 6))
    assert network._rows() == [
        {
            "layer": "1",
            "nodes": "2x3",
            "field": "2x2",
            "stride": "2x2",
            "sees": "2x2",
            "inputs": "4>2",
            "expanded": "4",
            "out": "3",
        },
        {
            "layer": "2",
            "nodes": "1x1 shared",
            "field": "2x3",
            "stride": "2x3",
            "sees": "4x6",
            "inputs": "18",
            "expanded": "36",
            "out": "4",
        },
    ]
    lines = str(network).splitlines()
    assert lines[0] == "HiGSFA for input 4x6, not fitted"
    assert lines[1].split() == ["layer", "nodes", "field", "stride", "sees", "inputs", "expanded", "out"]
    assert lines[-1] == f"({LEGEND})"
    assert len({len(line) for line in lines[1:-1]}) == 1
    assert "<td" in network._repr_html_()
    shown = fitted()
    assert shown._title() == "HiGSFA for input 4x6, fitted"
    rows = shown._rows()
    assert [row["mean J"] for row in rows] == ["1.00", "2.00"]
    means = np.nanmean(shown.layers_[0].delta_values[:, :3], axis=0)
    assert rows[0]["mean Delta 1-3"] == " ".join(f"{value:.3f}" for value in means)


def test_text_and_html_hold_the_same_cells():
    rows = [{"a": "1", "b<": "long"}, {"a": "200", "b<": "&"}]
    assert text_table(rows) == f"  a    b<\n  1  long\n200     &\n({LEGEND})"
    html = html_table("<t>", rows)
    assert re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", html) == ["a", "b&lt;", "1", "long", "200", "&amp;"]
    assert html.startswith("<div><strong>&lt;t&gt;</strong><table><thead><tr><th")
    assert html.count("<tr>") == 3


def test_progress_counts_the_work_of_layers(capsys, monkeypatch):
    from rich.progress import Progress

    bars = []

    class Noted(Progress):
        def __init__(self, *columns, **given):
            super().__init__(*columns, **given)
            bars.append(self)

    monkeypatch.setattr("rich.progress.Progress", Noted)
    plans = HiGSFA(LAYERS)._planned((4, 6))
    work = [6 * 14**2, 1 * 36**2]
    with progress(1, plans) as on_layer:
        (task,) = bars[0].tasks
        assert task.total == sum(work)
        step = on_layer(0, 4)
        assert task.description == "layer 1 of 2 (2x3 nodes)"
        step(1)
        step(2)
        assert task.completed == pytest.approx(0.75 * work[0])
        on_layer(1, 0)(0)
        assert task.description == "layer 2 of 2 (1x1 nodes)"
        assert task.completed == work[0]
    assert task.completed == sum(work)
    assert task.description == "2 layers"
    capsys.readouterr()
    with progress(0, plans) as on_layer:
        on_layer(0, 4)(1)
    assert capsys.readouterr() == ("", "")
    assert len(bars) == 1


@pytest.mark.parametrize(
    ("name", "value"), [("pca", 0), ("n_slow", -1), ("n_components", 0), ("min_scale", 1.0), ("shrinkage", -0.1)]
)
def test_numbers_of_a_layer_out_of_range_are_refused_by_name(name, value):
    layer = Layer(**{"field": 2, "n_components": 2, name: value})
    with pytest.raises(ValueError, match=f"'{name}' parameter of layer 1"):
        HiGSFA([layer], graph="serial").fit(np.random.default_rng(0).standard_normal((50, 4)), np.arange(50.0))
