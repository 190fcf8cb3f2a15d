"""Model files: what is saved comes back to the bit, and what is damaged or hostile is refused."""

import errno
import json
import os
import pickle
import stat
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline

import higsfa.io
import higsfa.models as models
from higsfa import (
    GSFA,
    HGSFA,
    HSFA,
    IGSFA,
    ISFA,
    SFA,
    HiGSFA,
    HiSFA,
    Layer,
    ModelFileError,
    load,
    save,
)
from higsfa.core.expansion.expansion import parse_expansion
from higsfa.graphs import (
    AutoGraph,
    ClusteredGraph,
    EdgeGraph,
    GraphSum,
    MixedGraph,
    SequenceGraph,
    SerialGraph,
    WindowGraph,
)
from higsfa.io.container import Tensors
from higsfa.models.fitted import Effort
from model_files import (
    CALLS,
    MEMORY,
    accepted,
    counted,
    edited,
    inner_header,
    put_together,
    refused,
    taken_apart,
    with_header,
)

pytestmark = pytest.mark.filterwarnings("ignore:n_components=.* asked for:UserWarning")


# ---------------------------------------------------------------------- models


def signals(n=150, n_features=6, seed=0):
    rng = np.random.default_rng(seed)
    X = np.cumsum(rng.standard_normal((n, n_features)), axis=0) / 5 + rng.standard_normal((n, n_features))
    return X, np.sin(np.arange(n) / 9) + X[:, 0] / 9


def classes(y):
    return np.digitize(y, [-0.5, 0.5])


def chain(n):
    """Sparse edges between neighbours, with some of their own weight."""
    return sp.csr_array(sp.diags_array([1.0 + np.arange(n - 1) % 3] * 2, offsets=[-1, 1]))


def edge_list(n):
    return np.column_stack([np.arange(n - 1), np.arange(1, n), np.linspace(1, 2, n - 1)])


PRESERVING = {"n_components": 5, "expansion": "identity | power0.8 | quadratic[:3]"}
ALL_RECIPES = (
    SerialGraph(n_groups=5)
    + 0.5 * ClusteredGraph(self_loops=True)
    + 0.25 * (MixedGraph() + WindowGraph(half_width=3, mirrored=True))
    + 0.1 * GraphSum([AutoGraph(), SequenceGraph(lag=2)], [1.0, 0.5])
)
SINGLE = {
    "sfa": SFA(),
    "sfa-quadratic": SFA(2, expansion="identity | quadratic"),
    "sfa-no-clipping": SFA(expansion="signed_power1e-01 | max2", clip_range=False, shrinkage=0.1, lag=np.int64(2)),
    "sfa-center": SFA(3, expansion=parse_expansion("polynomial2[1:4]"), center=[1, 2, 3, 4, 5, 6]),
    "isfa": ISFA(),
    "isfa-nothing-slow": ISFA(4, n_slow=0, expansion="normalized_quadratic"),
    "isfa-qr": ISFA(**PRESERVING, scaling="qr", min_scale=0.0, weighted=True),
    "gsfa-text": GSFA(2, graph="serial"),
    "gsfa-recipe": GSFA(2, graph=SerialGraph(n_groups=np.int32(7)), expansion=["identity", "power2"]),
    "gsfa-edges": GSFA(3, graph=EdgeGraph(chain(150).tocoo())),
    "igsfa": IGSFA(**PRESERVING, delta_threshold=1),
    "igsfa-sum": IGSFA(**PRESERVING, graph=ALL_RECIPES),
    "igsfa-edge-list": IGSFA(4, graph=EdgeGraph(edge_list(150), np.linspace(1, 2, 150)) + SerialGraph(0)),
}
NETWORKS = {
    "1d": (HiSFA([Layer(4, 2, 3, expansion="identity | quadratic"), Layer(3, None, 4)]), (8,)),
    "1d-slow-only": (HSFA([Layer(2, n_components=2), Layer(2, n_components=2), Layer(2, n_components=3)]), (8,)),
    "1d-channels": (HSFA([Layer((2,), (1,), 4), Layer((3,), None, 5)], input_shape=(4, 2), lag=2), (8,)),
    "2d-pca": (HiGSFA([Layer((4, 4), (2, 2), 6, pca=9, n_slow=2), Layer((3, 3), None, 8)]), (8, 8)),
    "2d-shared": (HGSFA([Layer((3, 3), (1, 1), 5, shared=True, pca=4), Layer((6, 6), None, 7, shared=True)]), (8, 8)),
    "2d-several-top-nodes": (HiGSFA([Layer([4, 2], [4, 2], 4, scaling="qr")], graph=ALL_RECIPES), (8, 8)),
    "2d-padded": (HiGSFA([Layer((5, 3), (2, 2), 9, pad=True), Layer((2, 3), (1, 2), 9, pad=True)]), (8, 8)),
    "2d-pyramid": (HiGSFA(input_shape=(8, 8), graph="clustered", memory_limit="1 GiB", n_jobs=2), (64,)),
    "2d-channels": (HiGSFA([Layer((2, 2), None, 5), Layer((2, 2), None, 5)], input_shape=(4, 4, 4)), (64,)),
    "3d": (HiSFA([Layer((2, 2, 2), None, 4), Layer((2, 2, 2), None, 6, n_slow=1)], input_shape=(4, 4, 4)), (64,)),
}


def network_data(shape):
    """Digits with dead pixels, so that some nodes have fewer features than they should."""
    images, digit = load_digits(return_X_y=True)
    images = images[:240] + 0.1 * np.random.default_rng(0).standard_normal((240, 64))
    images.reshape(-1, 8, 8)[:, :, :3] = 3.0
    return images[:, : int(np.prod(shape))].reshape(-1, *shape), digit[:240]


def fitted(name, dtype=np.float64):
    """A fitted model of a name, with the data it was fitted on."""
    if name in SINGLE:
        X, y = signals()
        return clone(SINGLE[name]).fit(X.astype(dtype), y), X.astype(dtype)
    network, shape = NETWORKS[name]
    X, y = network_data(shape)
    return clone(network).fit(X.astype(dtype), y), X.astype(dtype)


def pipeline():
    X, y = network_data((8, 8))
    steps = [("net", HiGSFA([Layer((4, 4), (4, 4), 6)])), ("top", IGSFA(5, graph=ClusteredGraph(), n_slow=2))]
    return Pipeline(steps, verbose=False).fit(X, y), X


def assert_same(a, b):
    """Equal parameters and attributes, whatever they are made of."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        assert np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f")
    elif sp.issparse(a):
        assert (sp.csr_array(a) != b).nnz == 0
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif hasattr(a, "get_params"):
        assert type(a) is type(b)
        assert_same_params(a, b)
    else:
        assert a == b


def assert_same_params(a, b):
    given, loaded = a.get_params(deep=False), b.get_params(deep=False)
    assert given.keys() == loaded.keys()
    for name in given:
        if name == "expansion" and isinstance(given[name], list):
            assert str(loaded[name]) == " | ".join(given[name])
        else:
            assert_same(given[name], loaded[name])


def assert_same_numbers(model, loaded, X):
    for kind in (np.float64, np.float32):
        Y, Z = model.transform(X.astype(kind)), loaded.transform(X.astype(kind))
        assert Y.dtype == Z.dtype == kind
        assert Y.tobytes() == Z.tobytes()
        back = model.inverse_transform(Y)
        assert back.dtype == kind
        assert back.tobytes() == loaded.inverse_transform(Y).tobytes()


# ---------------------------------------------------------------------- round trips


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", SINGLE)
def test_a_single_node_comes_back_to_the_bit(name, dtype, tmp_path):
    model, X = fitted(name, dtype)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded) is type(model)
    assert_same_numbers(model, loaded, 1.5 * X)
    assert_same_params(model, loaded)
    for attribute in ("delta_values_", "mean_", "n_slow_", "n_components_", "rank_", "n_features_in_"):
        assert_same(getattr(model, attribute), getattr(loaded, attribute))
    assert_same(model.get_feature_names_out(), loaded.get_feature_names_out())
    assert_same(model._node.output_mean, loaded._node.output_mean)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning")
def test_a_network_comes_back_to_the_bit(name, dtype, tmp_path):
    model, X = fitted(name, dtype)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded) is type(model)
    assert_same_numbers(model, loaded, 1.5 * X)
    assert_same_params(model, loaded)
    assert str(loaded) == str(model)
    for attribute in ("delta_values_", "input_shape_", "n_slow_", "n_components_", "n_features_in_"):
        assert_same(getattr(model, attribute), getattr(loaded, attribute))
    assert_same(model.get_feature_names_out(), loaded.get_feature_names_out())
    for before, after in zip(model.layers_, loaded.layers_, strict=True):
        assert repr(before) == repr(after)
        assert before.trained.plan == after.trained.plan
        for attribute in ("shape", "delta_values", "n_slow", "rank", "n_expanded"):
            assert_same(getattr(before, attribute), getattr(after, attribute))
        assert_same(before.trained.output_means, after.trained.output_means)


def test_the_networks_of_these_tests_have_padded_nodes():
    model, _ = fitted("2d-padded")
    counts = {node.n_components for node in model.layers_[0].nodes}
    assert 0 in counts
    assert 9 in counts


@pytest.mark.parametrize("name", ["igsfa-sum", "igsfa-edge-list", "2d-pca", "2d-shared", "3d"])
def test_saving_a_loaded_model_writes_the_same_file(name, tmp_path):
    save(fitted(name)[0], tmp_path / "first")
    save(load(tmp_path / "first"), tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_pipeline_comes_back_to_the_bit(tmp_path):
    model, X = pipeline()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, Pipeline)
    assert [name for name, _ in loaded.steps] == ["net", "top"]
    assert_same_numbers(model, loaded, X)
    for name in ("net", "top"):
        assert_same_params(model[name], loaded[name])


@pytest.mark.filterwarnings("ignore:X .* feature names:UserWarning")
def test_feature_names_are_kept(tmp_path):
    X, y = signals()
    frame = pd.DataFrame(X, columns=["plain", "two words", "", "naïve", "日本語\ud800", "😀"])
    model = GSFA(2, graph="serial").fit(frame, y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    assert loaded.feature_names_in_.dtype == object
    assert np.array_equal(loaded.transform(frame), model.transform(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame.iloc[:, ::-1])


def test_parameters_that_were_changed_after_the_fit_do_not_change_the_model(tmp_path):
    model, X = fitted("2d-pca")
    expected = model.transform(X)
    model.set_params(layer1__field=(2, 2), layer2__n_components=3, input_shape=None, graph="serial")
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.layers[0].field == (2, 2)
    assert loaded.graph == "serial"
    assert np.array_equal(loaded.transform(X), expected)


@pytest.mark.parametrize("name", ["sfa-quadratic", "2d-pca"])
def test_a_loaded_model_can_be_fitted_cloned_and_pickled(name, tmp_path):
    model, X = fitted(name)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    expected, y = model.transform(X), np.arange(len(X)) % 3
    assert np.array_equal(pickle.loads(pickle.dumps(loaded)).transform(X), expected)
    refit = clone(model).fit(X, y).transform(X)
    assert np.array_equal(clone(loaded).fit(X, y).transform(X), refit)
    assert np.array_equal(loaded.fit(X, y).transform(X), refit)


@pytest.mark.parametrize("model", [SFA(2), GSFA(2, graph="clustered")])
def test_a_loaded_model_does_not_go_on_with_partial_fit(model, tmp_path):
    X, y = signals()
    model.fit(X, classes(y))
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    before = loaded.transform(X)
    with pytest.raises(ValueError, match="loaded from a file has no statistics_"):
        loaded.partial_fit(X, classes(y))
    assert np.array_equal(loaded.transform(X), before)
    with pytest.raises(ValueError, match="statistics"):
        model.statistics_ + loaded.statistics_
    with pytest.raises(ValueError, match="loaded from a file has no statistics_"):
        loaded.statistics_ + model.statistics_
    with pytest.raises(AttributeError, match="loaded from a file has no statistics_"):
        loaded.statistics_.sums  # noqa: B018
    assert "not saved" in repr(loaded.statistics_)
    loaded.fit(X, classes(y)).partial_fit(X, classes(y))
    assert np.array_equal(loaded.transform(X), model.partial_fit(X, classes(y)).transform(X))


def test_layers_of_a_loaded_network_behave_like_a_tuple_of_nodes(tmp_path):
    model, _ = fitted("2d-pca")
    save(model, tmp_path / "model")
    nodes = load(tmp_path / "model").layers_[0].nodes
    assert len(nodes) == 9
    assert nodes[-1] is nodes[8]
    assert [node.rank for node in nodes[2:4]] == [node.rank for node in model.layers_[0].nodes[2:4]]
    with pytest.raises(IndexError):
        nodes[9]


def test_the_file_is_safetensors_with_few_arrays_and_no_pickle(tmp_path):
    model, _ = fitted("2d-pca")
    save(model, str(tmp_path / "model"))
    arrays = safetensors.numpy.load_file(tmp_path / "model")
    assert len(arrays) < 15 * len(model.layers_)
    assert arrays["layers.0.slow"].shape == (sum(model.layers_[0].n_slow), model.layers_[0].n_expanded)
    assert np.array_equal(arrays["layers.0.delta_values"], model.layers_[0].delta_values, equal_nan=True)
    header = inner_header((tmp_path / "model").read_bytes())
    assert (header["format"], header["protocol"], header["kind"]) == ("higsfa-model", 2, "HiGSFA")
    assert header["params"]["layers"][0]["pca"] == 9


# ---------------------------------------------------------------------- what cannot be saved


class OwnSFA(SFA):
    pass


def half(X):
    return X / 2


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LinearRegression(), "LinearRegression cannot be saved; these can: fitted SFA, GSFA"),
        (OwnSFA(), "OwnSFA cannot be saved"),
        (make_pipeline(SFA(), LinearRegression()), "LinearRegression in a Pipeline cannot be saved"),
        (make_pipeline(SFA(), make_pipeline(SFA(), SFA())), "Pipeline in a Pipeline cannot be saved"),
        (SFA(expansion=half), "function has no text form"),
        (SFA(expansion=["identity", half]), "function has no text form"),
        (HSFA([Layer(2, expansion=half, n_components=2)]), "function has no text form"),
    ],
)
def test_other_classes_and_functions_are_a_type_error(model, message, tmp_path):
    X, y = signals()
    model.fit(X, y)
    with pytest.raises(TypeError, match=message):
        save(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", [SFA(), IGSFA(), HiGSFA(), make_pipeline(SFA(), ISFA())])
def test_unfitted_estimators_are_not_fitted(model, tmp_path):
    with pytest.raises(NotFittedError):
        save(model, tmp_path / "model")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"delta_threshold": np.nan}, ValueError, "delta_threshold of IGSFA is nan"),
        ({"n_components": -1}, ValueError, "cannot be saved.*n_components"),
        ({"graph": "unknown"}, ValueError, "cannot be saved.*graph"),
        ({"graph": SerialGraph(label=("a", "b"))}, ValueError, "graph SerialGraph.label.*should be"),
        ({"scaling": object()}, TypeError, "scaling of IGSFA is a object"),
        ({"graph": EdgeGraph(sp.csr_array((2, 3)))}, ValueError, "square"),
    ],
)
def test_parameters_that_nobody_could_load_are_not_saved(changes, error, message, tmp_path):
    model, _ = fitted("igsfa")
    with pytest.raises(error, match=message):
        save(model.set_params(**changes), tmp_path / "model")


# ---------------------------------------------------------------------- writing is all or nothing


class FullDisk:
    """An open file on a disk that has room for some bytes only."""

    def __init__(self, how, room, error):
        self.how, self.room, self.error = how, room, error

    def __enter__(self):
        self.file = open(*self.how)
        return self

    def __exit__(self, *exception):
        self.file.close()

    def write(self, data):
        self.file.write(data[: self.room])
        raise self.error

    def __getattr__(self, name):
        return getattr(self.file, name)


def fail_to(monkeypatch, step):
    """Make one step of writing fail; returns the error."""
    error = KeyboardInterrupt() if step == "interrupted" else OSError(errno.ENOSPC, "No space left on device")

    def fail(*args, **kwargs):
        raise error

    if step in ("write", "interrupted"):
        monkeypatch.setattr(higsfa.io, "open", lambda *how: FullDisk(how, 1000, error), raising=False)
    elif step == "open":
        monkeypatch.setattr(higsfa.io, "open", fail, raising=False)
    else:
        monkeypatch.setattr(os, step, fail)
    return error


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("step", ["open", "write", "interrupted", "fsync", "replace"])
def test_a_failure_leaves_the_directory_as_it_was(step, existing, monkeypatch, tmp_path):
    old, X = fitted("sfa")
    if existing:
        save(old, tmp_path / "model")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with monkeypatch.context() as patched:
        error = fail_to(patched, step)
        with pytest.raises(type(error)):
            save(fitted("sfa-quadratic")[0], tmp_path / "model")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    if existing:
        assert np.array_equal(load(tmp_path / "model").transform(X), old.transform(X))


def test_an_existing_file_is_replaced_and_permissions_are_ordinary(tmp_path):
    save(fitted("sfa")[0], tmp_path / "model")
    model, X = fitted("sfa-quadratic")
    save(model, tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").transform(X), model.transform(X))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    (tmp_path / "ordinary").touch()
    assert (tmp_path / "model").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_paths_that_do_not_lead_anywhere(tmp_path):
    model, _ = fitted("sfa")
    with pytest.raises(FileNotFoundError, match="no such directory"):
        save(model, tmp_path / "missing" / "model")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "model")
    with pytest.raises(OSError, match="directory"):
        save(model, tmp_path)
    with pytest.raises(ModelFileError, match="not a regular file"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="not a regular file"):
        load(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(ModelFileError, match="not a regular file"):
        load("/dev/zero")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_links_to_models_are_followed(tmp_path):
    model, X = fitted("sfa")
    save(model, tmp_path / "model")
    os.symlink(tmp_path / "model", tmp_path / "link")
    assert np.array_equal(load(str(tmp_path / "link")).transform(X), model.transform(X))


# ---------------------------------------------------------------------- files by hand


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small files of many kinds, as bytes."""
    folder = tmp_path_factory.mktemp("files")
    models = {
        name: fitted(name)[0] for name in ("sfa", "sfa-center", "igsfa", "igsfa-sum", "igsfa-edge-list", "gsfa-edges")
    }
    models |= {name: fitted(name)[0] for name in ("1d", "2d-pca", "2d-shared", "2d-padded", "3d")}
    models["pipeline"] = pipeline()[0]
    X, y = signals()
    models["names"] = GSFA(1).fit(pd.DataFrame(X, columns=list("abcdef")), classes(y))
    for name, model in models.items():
        save(model, folder / name)
    return {name: (folder / name).read_bytes() for name in models}


def test_taking_apart_and_putting_together_is_harmless(files, tmp_path):
    for data in files.values():
        accepted(put_together(*taken_apart(data)), tmp_path / "model")


@pytest.mark.parametrize("name", ["sfa", "2d-shared", "pipeline"])
def test_truncated_files_are_refused(name, files, tmp_path):
    data = files[name]
    start = 8 + int.from_bytes(data[:8], "little")
    ends = [start + entry["data_offsets"][1] for entry in taken_apart(data)[1].values()]
    lengths = {*range(0, 40), start - 1, start, start + 1, len(data) - 1, *(e + d for e in ends for d in (-1, 0, 1))}
    for length in sorted(lengths):
        if length < len(data):
            refused(data[:length], tmp_path / "model")
    refused(data + b"\0", tmp_path / "model")


NESTED = "[" * 100_000 + "]" * 100_000
BOMBS = {
    "empty": b"",
    "zeros": bytes(1000),
    "huge length": b"\xff" * 7 + b"\x7f" + b"{}",
    "negative length": b"\xff" * 8 + b"{}",
    "length beyond the file": (10**6).to_bytes(8, "little") + b"{}",
    "no utf-8": with_header(b'{"\xff\xfe": 1}'),
    "no json": with_header("{'a': 1}"),
    "no object": with_header("[1, 2]"),
    "no metadata": with_header("{}"),
    "foreign safetensors": safetensors.numpy.save({"weight": np.zeros(3)}, {"format": "pt"}),
    "metadata of another type": with_header('{"__metadata__": {"higsfa": {}}}'),
    "more metadata": with_header('{"__metadata__": {"higsfa": "{}", "more": "1"}}'),
    "nested": with_header(NESTED),
    "nested inside": put_together(NESTED, {}, b""),
    "nested objects": with_header('{"a":' * 40_000 + "1" + "}" * 40_000),
    "duplicate keys": with_header('{"__metadata__": {"higsfa": "{}"}, "a": 1, "a": 1}'),
    "duplicate keys inside": put_together('{"format": "higsfa-model", "format": "higsfa-model"}', {}, b""),
    "nan": put_together('{"format": NaN}', {}, b""),
    "infinity": put_together('{"format": -Infinity}', {}, b""),
    "too large a number": put_together('{"format": 1e999}', {}, b""),
    "many digits": put_together('{"format": ' + "9" * 200_000 + "}", {}, b""),
    "many decimals": put_together('{"format": 0.' + "9" * 200_000 + "}", {}, b""),
    "many lists": with_header("[" + "[]," * 87_000 + "[]]"),
    "many filled lists": with_header("[" + "[0]," * 65_000 + "[]]"),
    "many objects": with_header("[" + '{"":0},' * 37_000 + "{}]"),
    "many objects inside": put_together("[" + '{"":0},' * 28_000 + "{}]", {}, b""),
    "many keys": with_header("{" + ",".join(f'"{k:x}":[]' for k in range(24_000)) + "}"),
    "wide characters": with_header('["😀' + "a" * 260_000 + '"]'),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bytes_that_are_no_model_are_refused(name, tmp_path):
    message = refused(BOMBS[name], tmp_path / "model")
    assert message.startswith(f"cannot load {tmp_path / 'model'}: ")
    assert len(message) < 1000


def test_a_header_beyond_the_limit_is_not_even_parsed(tmp_path):
    message = refused(with_header(b" " * 2**18 + b"{}"), tmp_path / "model")
    assert "262,144" in message


def test_a_newer_protocol_is_named(files, tmp_path):
    data = edited(files["sfa"], "protocol", 7)
    header, listing, arrays = taken_apart(data)
    data = put_together(header | {"new": 1}, listing | {"new": {"dtype": "F8"}}, arrays)
    message = refused(data, tmp_path / "model")
    assert "made by a newer higsfa, protocol 7; this version reads up to 2" in message


def test_older_protocols_are_upgraded_step_by_step(files, tmp_path, monkeypatch):
    def first(header):
        assert header["protocol"] == 1
        return header | {"n_inputs": header["size"]}

    def second(header):
        return {key: value for key, value in header.items() if key != "size"}

    old = edited(edited(edited(files["sfa"], "size", 6), "n_inputs", 7), "protocol", 1)
    monkeypatch.setattr(models, "PROTOCOL", 3)
    monkeypatch.setattr(models, "UPGRADES", {1: first, 2: second})
    assert accepted(old, tmp_path / "model").n_features_in_ == 6
    assert "node.center" in refused(edited(edited(old, "protocol", 2), "n_inputs", 7), tmp_path / "model")
    assert "unknown or missing: 'size'" in refused(edited(old, "protocol", 3), tmp_path / "model")
    assert "up to 3" in refused(edited(old, "protocol", 4), tmp_path / "model")


WRONG_ENTRIES = {
    "dtype": ["F32", "BOOL", "F128", "", None, 1, ["F64"]],
    "shape": [
        None,
        6,
        [],
        [-1],
        [-1, -6],
        [6.0],
        [True],
        ["6"],
        [2**62],
        [2**63],
        [1, 6, 1, 1, 1],
        [1, 1, 6],
        [10**18] * 4,
    ],
    "data_offsets": [None, [], [0], [0, 1, 2], [-8, 40], [8, 0], [0, 2**62], [2**63, 2**63 + 48], [0.0, 48.0], [0, 40]],
}


@pytest.mark.parametrize(("field", "value"), [(field, v) for field, values in WRONG_ENTRIES.items() for v in values])
def test_entries_of_arrays_that_are_wrong_are_refused(field, value, files, tmp_path):
    header, listing, arrays = taken_apart(files["sfa"])
    listing["node.center"][field] = value
    refused(put_together(header, listing, arrays), tmp_path / "model")


def test_arrays_must_fill_the_file_without_gap_or_overlap(files, tmp_path):
    header, listing, arrays = taken_apart(files["sfa"])
    entry = {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}
    assert "overlap" in refused(put_together(header, listing | {"more": entry}, arrays), tmp_path / "model")
    assert "bytes" in refused(put_together(header, listing, arrays + bytes(8)), tmp_path / "model")
    end = len(arrays)
    after = {"dtype": "F64", "shape": [1], "data_offsets": [end + 8, end + 16]}
    assert "gap" in refused(put_together(header, listing | {"more": after}, arrays + bytes(16)), tmp_path / "model")
    more = {"dtype": "F64", "shape": [1], "data_offsets": [end, end + 8]}
    assert "unknown arrays: 'more'" in refused(
        put_together(header, listing | {"more": more}, arrays + bytes(8)), tmp_path / "model"
    )
    shared = listing | {"node.center": listing["node.decode_offset"]}
    assert "overlap" in refused(put_together(header, shared, arrays), tmp_path / "model")


@pytest.mark.parametrize("name", ["sfa", "2d-pca", "gsfa-edges", "names"])
def test_every_array_is_needed(name, files, tmp_path):
    header, listing, arrays = taken_apart(files[name])
    for missing in listing:
        renamed = {("x" if key == missing else key): entry for key, entry in listing.items()}
        assert f"array {missing} is missing" in refused(put_together(header, renamed, arrays), tmp_path / "model")


HUGE = 2**24
WRONG_HEADERS = [
    # what it is
    ("sfa", "format", "other", "format"),
    ("sfa", "format", KeyError, "format"),
    ("sfa", "protocol", 0, "protocol"),
    ("sfa", "protocol", True, "protocol"),
    ("sfa", "protocol", "1", "protocol"),
    ("sfa", "version", None, "version"),
    ("sfa", "kind", "LinearRegression", "unknown kind"),
    ("sfa", "kind", "os.system", "unknown kind"),
    ("sfa", "kind", ["SFA"], "unknown kind"),
    ("sfa", "kind", "HiGSFA", "must have the members"),
    ("sfa", "more", 1, "unknown or missing: 'more'"),
    ("sfa", "n_inputs", KeyError, "unknown or missing: 'n_inputs'"),
    # parameters
    ("sfa", "params", None, "parameters of SFA"),
    ("sfa", "params", [], "parameters of SFA"),
    ("sfa", "params.unknown", 1, "unknown or missing: 'unknown'"),
    ("sfa", "params.lag", KeyError, "unknown or missing: 'lag'"),
    ("sfa", "params.lag", 0, "lag"),
    ("sfa", "params.lag", 1.5, "lag"),
    ("sfa", "params.n_components", -1, "n_components"),
    ("sfa", "params.n_components", {"a": 1}, "n_components"),
    ("sfa", "params.shrinkage", "much", "shrinkage"),
    ("sfa", "params.clip_range", "yes", "clip_range"),
    ("sfa", "params.center", True, "params.center is missing"),
    ("sfa", "params.center", "yes", "SFA.center: Input should be a valid boolean, found 'yes'"),
    ("sfa", "params.expansion", "cubic", "unknown term"),
    ("sfa", "params.expansion", None, "expansion"),
    ("sfa", "params.expansion", {"text": "<function f>"}, "functions have no text form"),
    ("sfa", "params.expansion", "identity|" * 1000, "at most 4,096 characters"),
    ("sfa", "params.expansion", "power" + "0" * 4000 + "x", "more than 128 characters"),
    ("sfa", "params.expansion", "polynomial9", "degree"),
    ("igsfa-sum", "params.graph", "unknown", "graph"),
    ("igsfa-sum", "params.graph", None, "unknown recipe"),
    ("igsfa-sum", "params.graph.recipe", "BaseEstimator", "unknown recipe"),
    ("igsfa-sum", "params.graph.weights", [1.0], "one real number for each graph"),
    ("igsfa-sum", "params.graph.weights.0", "1", "weights.0: Input should be a valid number"),
    ("igsfa-sum", "params.graph.graphs", 3, "list"),
    (
        "igsfa-sum",
        "params.graph.graphs.0.n_groups",
        2.5,
        "graph SerialGraph.n_groups: Input should be a valid integer, found 2.5",
    ),
    ("igsfa-sum", "params.graph.graphs.0.more", 1, "unknown or missing"),
    ("2d-pca", "params.layers.0.field", [4, "4"], "Layer.field.1: Input should be a valid integer, found '4'"),
    ("2d-pca", "params.layers.0.n_components", 0, "n_components"),
    ("2d-pca", "params.layers.0", "Layer", "parameters of Layer"),
    ("2d-pca", "params.n_jobs", 10**9, "n_jobs"),
    ("2d-pca", "params.n_jobs", 0, "n_jobs"),
    # what was trained
    ("sfa", "n_inputs", 0, "n_inputs"),
    ("sfa", "n_inputs", 7, "node.center"),
    ("sfa", "n_inputs", HUGE, "node.center"),
    ("sfa", "n_inputs", 10**12, "n_inputs"),
    ("sfa", "clipped", True, "node.low is missing"),
    ("sfa", "clipped", 1, "clipped: Input should be a valid boolean, found 1"),
    ("sfa", "expansion", "identity[:2]", "node.nodes"),
    ("sfa", "expansion", "identity | quadratic", "node.slow"),
    ("sfa", "expansion", "identity[:99]", "reaches beyond"),
    ("sfa", "expansion", "identity[:" + "9" * 100 + "]", "reaches beyond"),
    ("sfa", "feature_names_in", True, "feature_names_in is missing"),
    ("names", "feature_names_in", False, "unknown arrays"),
    ("2d-pca", "input_shape", [], "input_shape"),
    ("2d-pca", "input_shape", [8], "input_shape has 1 dimensions"),
    ("2d-pca", "input_shape", [8, 0], "input_shape"),
    ("2d-pca", "input_shape", [8, 8, 2], "layers.0.axes"),
    ("2d-pca", "input_shape", [4096, 4096, 2], "input_shape"),
    ("2d-pca", "input_shape", [2, HUGE // 2], "too much memory"),
    ("2d-pca", "input_shape", [10, 8], "layers.0.nodes"),
    ("2d-pca", "input_shape", [9, 8], "does not fit"),
    ("2d-pca", "trained", [], "at least 1 item"),
    ("2d-pca", "trained.0", 5, "trained.0: a JSON object is needed, found 5"),
    ("2d-pca", "trained.0.field", [9, 4], "does not fit"),
    ("2d-pca", "trained.0.field", [4], "must have 1 dimensions"),
    ("2d-pca", "trained.0.field", [4, 4, 4, 4], "field"),
    ("2d-pca", "trained.1.field", [3], "must have 2 dimensions"),
    ("2d-pca", "trained.0.stride", [0, 2], "stride"),
    ("2d-pca", "trained.0.stride", [2, 2, 2], "must have 2 dimensions"),
    ("2d-pca", "trained.0.stride", [4, 4], "layers.0.nodes"),
    ("2d-pca", "trained.0.shared", True, "layers.0.nodes"),
    ("2d-pca", "trained.0.pca", None, "layers.0"),
    ("2d-pca", "trained.0.pca", 12, "layers.0"),
    ("2d-pca", "trained.0.clipped", False, "unknown arrays"),
    ("2d-pca", "trained.0.options", {}, "options"),
    ("2d-pca", "trained.0.options.n_components", None, "n_components"),
    ("2d-pca", "trained.0.options.n_components", 5, "layers.0.nodes"),
    ("2d-pca", "trained.0.options.n_components", HUGE, "too many outputs"),
    ("2d-pca", "trained.0.options.scaling", "none", "scaling"),
    ("2d-pca", "trained.0.options.weighted", 1, "weighted"),
    ("pipeline", "steps", [], "names"),
    ("pipeline", "steps.0.name", "top", "all different"),
    ("pipeline", "steps.0.name", "a__b", "without '__'"),
    ("pipeline", "steps.0.model.kind", "Pipeline", "unknown kind"),
    ("pipeline", "verbose", 1, "verbose"),
    ("pipeline", "memory", "/tmp/cache", "unknown or missing: 'memory'"),
]


@pytest.mark.parametrize(("name", "path", "value", "message"), WRONG_HEADERS)
def test_headers_that_are_wrong_are_refused(name, path, value, message, files, tmp_path):
    assert message in refused(edited(files[name], path, value), tmp_path / "model")


def test_the_steps_of_a_pipeline_must_fit_together(files, tmp_path):
    header, listing, arrays = taken_apart(files["pipeline"])
    header["steps"] = [header["steps"][1], header["steps"][0]]
    turned = {"steps.0": "steps.1", "steps.1": "steps.0"}
    listing = {turned[name[:7]] + name[7:]: entry for name, entry in listing.items()}
    assert "the step before makes 5" in refused(put_together(header, listing, arrays), tmp_path / "model")


def rebuilt(data, header=(), **arrays):
    """The file with arrays replaced (a name with _ for a dot), or taken out by None, and its header edited."""
    for path, value in dict(header).items():
        data = edited(data, path, value)
    found = safetensors.numpy.load(data)
    for name, array in arrays.items():
        found[name.replace("__", ".")] = array
    kept = {name: array for name, array in found.items() if array is not None}
    return safetensors.numpy.save(kept, {"higsfa": json.dumps(inner_header(data))})


def sizes(n_nodes=1, **changes):
    """The table of a layer's sizes."""
    row = {"n_slow": 6, "n_components": 6, "rank": 6, "n_deltas": 6, "layout": 0} | changes
    return np.tile(np.array(list(row.values()), dtype=np.int64), (n_nodes, 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_slow": -1}, "out of range"),
        ({"n_slow": 7, "n_components": 7}, "out of range"),
        ({"n_slow": -(2**63), "n_components": 2**63 - 1}, "out of range"),
        ({"n_components": 2**40}, "out of range"),
        ({"n_components": 5}, "do not fit together"),
        ({"n_components": 13}, "do not fit together"),
        ({"n_components": 8}, "node.rest_inputs"),
        ({"n_slow": 5}, "node.slow"),
        ({"n_deltas": 5}, "do not fit together"),
        ({"n_slow": 5, "n_components": 5, "n_deltas": 5}, "delta_values"),
        ({"rank": 7}, "out of range"),
        ({"rank": 5}, "do not fit together"),
        ({"layout": 16}, "out of range"),
    ],
)
def test_sizes_of_nodes_that_do_not_fit_are_refused(changes, message, files, tmp_path):
    assert message in refused(rebuilt(files["sfa"], node__nodes=sizes(**changes)), tmp_path / "model")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(value, files, tmp_path):
    for name in ("sfa-center", "2d-pca", "gsfa-edges", "igsfa-edge-list"):
        for key, array in safetensors.numpy.load(files[name]).items():
            if array.dtype == np.float64 and array.size:
                changed = array.copy()
                changed.flat[0] = value
                data = rebuilt(files[name], **{key.replace(".", "__"): changed})
                assert key in refused(data, tmp_path / "model")


def test_a_range_upside_down_is_refused(files, tmp_path):
    low = safetensors.numpy.load(files["2d-pca"])["layers.0.low"]
    data = rebuilt(files["2d-pca"], layers__0__low=low + 1e9)
    assert "layers.0.low is above" in refused(data, tmp_path / "model")


@pytest.mark.parametrize("name", [b"a\0b\0c\0d\0e", b"a\0b\0c\0d\0e\0f\0g", b"a\0b\0c\0d\0e\0\xff", b""])
def test_feature_names_that_do_not_fit_are_refused(name, files, tmp_path):
    data = rebuilt(files["names"], feature_names_in=np.frombuffer(name, dtype=np.uint8))
    assert "feature_names_in" in refused(data, tmp_path / "model")


@pytest.mark.parametrize(
    "arrays",
    [
        {"graph__indices": np.full(298, 150)},
        {"graph__indices": np.full(298, -1)},
        {"graph__indptr": np.zeros(151, dtype=np.int64)},
        {"graph__indptr": np.r_[0, 299, np.full(149, 298)]},
        {"graph__indptr": np.r_[-(2**63), np.full(150, 298)]},
        {"graph__indptr": np.zeros(0, dtype=np.int64)},
        {"graph__weights": np.zeros(5)},
    ],
)
def test_sparse_edges_that_are_no_matrix_are_refused(arrays, files, tmp_path):
    assert "graph" in refused(rebuilt(files["gsfa-edges"], **arrays), tmp_path / "model")


def without_outputs(n_inputs):
    """Arrays of a node that has inputs but no features."""
    empty = {name: np.zeros(0) for name in ("slow_offset", "rest_slow", "rest_offset", "decoder", "output_mean")}
    zeros = {name: np.zeros((1, n_inputs)) for name in ("center", "decode_offset")}
    table = {"nodes": sizes(n_slow=0, n_components=0, rank=0, n_deltas=0), "delta_values": np.zeros((1, 0))}
    both = empty | zeros | table | {"rest_inputs": np.zeros((0, n_inputs))}
    return {f"node__{name}": array for name, array in both.items()}


def wide(files, expansion, n_inputs):
    """A file of a node that expands its inputs to any size, but has no features."""
    header = {"expansion": expansion, "n_inputs": n_inputs, "params.n_components": None}
    size = parse_expansion(expansion).size(n_inputs)
    arrays = without_outputs(n_inputs) | {"node__slow": np.zeros((0, 1))}
    header, listing, payload = taken_apart(rebuilt(files["sfa"], header, **arrays))
    listing["node.slow"]["shape"] = [0, min(size, 2**48)]
    return put_together(header, listing, payload)


@pytest.mark.parametrize(
    ("expansion", "n_inputs"),
    [("polynomial8", 10_000), ("quadratic", 10_000), ("identity" + " | polynomial2" * 200, 500)],
)
def test_expansions_are_counted_before_anything_is_expanded(expansion, n_inputs, files, tmp_path):
    assert "expanded size" in refused(wide(files, expansion, n_inputs), tmp_path / "model")


@pytest.mark.parametrize(("expansion", "n_inputs"), [("polynomial8", 24), ("quadratic", 5041)])
def test_a_node_without_slow_features_expands_nothing(expansion, n_inputs, files, tmp_path):
    model = accepted(wide(files, expansion, n_inputs), tmp_path / "model")
    count = counted(model.transform, np.ones((2, n_inputs)))
    assert count.result.shape == (2, 0)
    assert count.memory < MEMORY
    assert count.calls < CALLS


@pytest.mark.parametrize(
    ("name", "n_names", "fits"),
    [
        ("ab", 150_000, True),
        ("x" * 30, 100_000, True),
        ("😀a", 80_000, True),
        ("😀" + "x" * 29, 40_000, True),
        ("ab", 1_000_000, False),
        ("😀" + "x" * 29, 100_000, False),
    ],
)
def test_feature_names_are_counted_before_they_are_read(name, n_names, fits, files, tmp_path):
    header = {"n_inputs": n_names, "params.n_components": None}
    arrays = without_outputs(n_names) | {"node__slow": np.zeros((0, n_names))}
    arrays |= {"feature_names_in": np.frombuffer("\0".join([name] * n_names).encode(), dtype=np.uint8)}
    data = rebuilt(files["names"], header, **arrays)
    if fits:
        model = accepted(data, tmp_path / "model")
        assert list(model.feature_names_in_[-2:]) == [name] * 2
    else:
        assert "too much memory" in refused(data, tmp_path / "model")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_shape": [2**24], "field": [1], "stride": [1]}, "too much memory"),
        ({"input_shape": [2**24], "field": [1], "stride": [2**23]}, "too much memory"),
        ({"input_shape": [2**17], "field": [2**16], "stride": [1]}, "overlap too much"),
        ({"input_shape": [2**13], "field": [2**12], "stride": [1]}, "overlap too much"),
        ({"input_shape": [2**24, 2], "field": [1], "stride": [1]}, "input_shape"),
        ({"input_shape": [2**62], "field": [1], "stride": [1]}, "input_shape"),
        ({"input_shape": [4096, 4096], "field": [64, 64], "stride": [1, 1]}, "overlap too much"),
        ({"input_shape": [256, 256, 256], "field": [1, 1, 1], "stride": [1, 1, 1]}, "too many outputs"),
    ],
)
def test_grids_are_counted_before_any_field_is_listed(changes, message, files, tmp_path):
    header = inner_header(files["2d-shared"])
    layer = header["trained"][0] | {key: value for key, value in changes.items() if key != "input_shape"}
    data = rebuilt(files["2d-shared"], {"input_shape": changes["input_shape"], "trained": [layer]})
    assert message in refused(data, tmp_path / "model")


def network_file(
    files, n_inputs, *, field=1, n_slow=1, n_components=None, expansion="identity", shared=True, n_layers=1
):
    """A file of a network of equal layers, whose nodes see some neighbours and make slow features of ones."""
    layer = inner_header(files["1d"])["trained"][0]
    layer |= {"field": [field], "stride": [1], "expansion": expansion, "clipped": False, "shared": shared}
    layer["options"] |= {"n_components": n_components or n_slow}
    n, J, size = 1 if shared else n_inputs - field + 1, n_slow, parse_expansion(expansion).size(1, field)
    arrays = dict.fromkeys(("center", "decode_offset"), np.ones((n, field)))
    arrays |= {"slow": np.ones((n * J, size)), "delta_values": np.ones((n, J)), "decoder": np.ones(n * J * field)}
    arrays |= {"nodes": sizes(n, n_slow=J, n_components=J, rank=J, n_deltas=J)}
    arrays |= dict.fromkeys(("slow_offset", "output_mean"), np.ones(n * J))
    arrays |= {"rest_inputs": np.zeros((0, field)), "rest_slow": np.zeros(0), "rest_offset": np.zeros(0)}
    named = {f"layers__{k}__{name}": array for k in range(n_layers) for name, array in arrays.items()}
    gone = {key.replace(".", "__"): None for key in safetensors.numpy.load(files["1d"])}
    return rebuilt(files["1d"], {"input_shape": [n_inputs], "trained": [layer] * n_layers}, **(gone | named))


def test_very_many_nodes_are_loaded_and_shown_without_making_any(files, tmp_path):
    n = 50_000
    model = accepted(network_file(files, n, shared=False), tmp_path / "model")
    assert model.n_components_ == n
    assert (model.layers_[0].delta_values == 1).all()
    shown = counted(str, model)
    assert f" {n} " in shown.result
    assert shown.calls < 2 * n
    names = counted(model.get_feature_names_out)
    assert names.result[-1] == f"hisfa_node{n - 1}_slow0"
    assert names.calls < 5 * n


@pytest.mark.parametrize(
    ("good", "too_much"),
    [
        ({}, {"n_components": 1000}),
        ({"n_layers": 7}, {"n_layers": 8}),
        ({"expansion": "|".join(["identity"] * 14)}, {"expansion": "|".join(["identity"] * 15)}),
        ({"field": 8, "n_slow": 50}, {"field": 8, "n_slow": 120}),
        ({"field": 8, "expansion": "polynomial5"}, {"field": 8, "expansion": "polynomial6"}),
    ],
)
def test_a_shared_node_may_be_used_in_proportion_to_the_input(good, too_much, files, tmp_path):
    n = 10_000
    if "n_slow" in good:
        good, too_much = good | {"expansion": "polynomial4"}, too_much | {"expansion": "polynomial4", "n_slow": 280}
    model = accepted(network_file(files, n, **good), tmp_path / "model")
    if not good:
        assert np.array_equal(model.transform(np.ones((1, n))), np.ones((1, n)))
    message = refused(network_file(files, n, **too_much), tmp_path / "model")
    assert ("too many outputs" if "n_components" in too_much else "too much work") in message


def test_what_nobody_uses_is_not_counted(files, tmp_path):
    terms = "|".join(["identity"] * 15)
    accepted(network_file(files, 10_000, n_slow=0, n_components=1, expansion=terms), tmp_path / "model")


@pytest.mark.parametrize("shared", [False, True])
def test_outputs_that_no_node_makes_are_limited(shared, files, tmp_path):
    accepted(network_file(files, 10, n_components=100_000, shared=shared), tmp_path / "model")
    message = refused(network_file(files, 10, n_components=106_000, shared=shared), tmp_path / "model")
    assert "too many outputs" in message


# ---------------------------------------------------------------------- limits are where the documentation says


def nested(depth):
    """A recipe that is a sum of sums."""
    recipe = {"recipe": "AutoGraph"}
    for _ in range(depth):
        recipe = {"recipe": "GraphSum", "graphs": [recipe], "weights": None}
    return recipe


def summed(n):
    return {"recipe": "GraphSum", "graphs": [{"recipe": "AutoGraph"}] * n, "weights": [1.0] * n}


LONG = "identity|" * 454 + "identity"
LIMITS = {
    "digits": ("sfa", "params.shrinkage", int("9" * 40), int("9" * 41), "40 digits"),
    "negative digits": ("1d", "params.n_jobs", -int("9" * 39), -int("9" * 40), "40 digits"),
    "expansion": ("sfa", "params.expansion", LONG + "  ", LONG + "   ", "4,096"),
    "term": ("sfa", "params.expansion", "identity" + " " * 120, "identity" + " " * 121, "128 characters"),
    "text": ("1d", "params.spill", "x" * 4096, "x" * 4097, "4,096"),
    "version": ("sfa", "version", "1" * 1000, "1" * 1001, "1,000"),
    "step": ("pipeline", "steps.0.name", "s" * 1000, "s" * 1001, "1,000"),
    "input of a step": ("pipeline", "transform_input", ["s" * 1000], ["s" * 1001], "1,000"),
    "inputs of steps": ("pipeline", "transform_input", ["s"] * 1000, ["s"] * 1001, "at most 1000 items"),
    "depth": ("igsfa", "params.graph", nested(8), nested(9), "nested too deeply"),
    "graphs": ("igsfa", "params.graph", summed(1000), summed(1001), "at most 1000 items"),
    "threads": ("1d", "params.n_jobs", 1024, 1025, "1,024"),
    "no threads": ("1d", "params.n_jobs", 1, 0, "n_jobs"),
    "sizes": ("1d", "params.input_shape", [1] * 8, [1] * 9, "at most 8"),
    "components": ("sfa", "params.n_components", 1, 0, "n_components"),
    "protocol": ("sfa", "protocol", 2, 3, "newer"),
    "far protocol": ("sfa", "protocol", 1, 2**31 + 1, "less than or equal to 2147483648"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_header_may_go_up_to_its_limits_and_not_beyond(limit, files, tmp_path):
    name, path, most, beyond, message = LIMITS[limit]
    accepted(edited(files[name], path, most), tmp_path / "model")
    assert message in refused(edited(files[name], path, beyond), tmp_path / "model")


def test_a_header_may_have_256_kib(files, tmp_path):
    header, listing, arrays = taken_apart(files["sfa"])
    outer = json.dumps({"__metadata__": {"higsfa": json.dumps(header)}} | listing).encode()
    accepted(with_header(outer.ljust(2**18), arrays), tmp_path / "model")
    assert "262,145 bytes, more than the 262,144" in refused(
        with_header(outer.ljust(2**18 + 1), arrays), tmp_path / "model"
    )


def test_numbers_of_a_header_may_have_40_characters(files, tmp_path):
    header, listing, arrays = taken_apart(files["sfa"])
    text = json.dumps(header)
    written = text.replace('"shrinkage": 0.0', f'"shrinkage": 0.{"1" * 38}')
    assert accepted(put_together(written, listing, arrays), tmp_path / "model").shrinkage == pytest.approx(1 / 9)
    written = text.replace('"shrinkage": 0.0', f'"shrinkage": 0.{"1" * 39}')
    assert "40 digits" in refused(put_together(written, listing, arrays), tmp_path / "model")


def test_arrays_have_at_most_four_dimensions_of_at_most_2_to_48(files, tmp_path):
    header, listing, arrays = taken_apart(files["sfa"])
    end = len(arrays)
    for shape, message in (
        ([0, 2**48, 1, 1], "unknown arrays"),
        ([0, 2**48 + 1], "less than or equal to 281474976710656"),
        ([0, 1, 1, 1, 1], "at most 4 items"),
    ):
        more = {"dtype": "F64", "shape": shape, "data_offsets": [end, end]}
        assert message in refused(put_together(header, listing | {"more": more}, arrays), tmp_path / "model")


def test_samples_and_expansions_have_at_most_2_to_24_numbers(files, tmp_path):
    assert "node.center" in refused(edited(files["sfa"], "n_inputs", 2**24), tmp_path / "model")
    assert "less than or equal to 16777216" in refused(edited(files["sfa"], "n_inputs", 2**24 + 1), tmp_path / "model")
    for n, message in ((5792, "node.nodes must be"), (5793, "more than 16,777,216")):  # n (n + 1) / 2
        data = rebuilt(files["sfa"], {"expansion": "quadratic", "n_inputs": n}, node__nodes=np.zeros((1, 4), np.int64))
        assert message in refused(data, tmp_path / "model")
    for shape, message in (([4096, 4096], "too much memory"), ([4097, 4096], "at most 16,777,216 values")):
        data = rebuilt(files["2d-shared"], {"input_shape": shape, "trained.0.stride": [1, 1]})
        assert message in refused(data, tmp_path / "model") or shape == [4096, 4096]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("sfa", 0),
        ("2d-pca", 40 * (8 + 8) + 40 * (3 + 3) + 40 * (1 + 1)),  # positions of the axes of the input and of each layer
        ("names", 2 * 11 + 80 * 6),  # characters twice, and the names
        ("wide names", 8 * 19 + 80 * 6),
        ("gsfa-edges", 8 * 298 + 2 * 8 * 151),  # indices once more, and where rows begin twice
    ],
)
def test_memory_beyond_the_arrays_is_counted(name, more, files, tmp_path, monkeypatch):
    spent, spend = [], Tensors.spend
    monkeypatch.setattr(Tensors, "spend", lambda self, n: (spent.append(n), spend(self, n))[1])
    data = files[name.removeprefix("wide ")]
    if name == "wide names":
        data = rebuilt(data, feature_names_in=np.frombuffer("a\0b\0c\0d\0e\0ü語😀".encode(), dtype=np.uint8))
    model = accepted(data, tmp_path / "model")
    deltas = (
        [layer.delta_values.shape for layer in model.layers_]
        if name == "2d-pca"
        else [(1, len(model._node.delta_values))]
    )
    assert sum(spent) == more + sum(100 * n + 8 * n * longest for n, longest in deltas)


def test_a_file_may_take_its_size_and_12_mib(files, tmp_path):
    size = len(files["sfa"])
    tensors = Tensors(None, 0, {}, size)
    tensors.spend(size)
    tensors.spend(12 * 2**20)
    tensors.spend(0)
    with pytest.raises(ModelFileError, match=f"too much memory for a file of {size:,} bytes"):
        tensors.spend(1)


def test_the_cost_of_a_sample_is_bounded_by_its_size_and_that_of_the_file():
    def plan(n_fields, terms, *, shared):
        fields = SimpleNamespace(n_nodes=n_fields)
        expansion = parse_expansion("|".join(["identity"] * terms))
        return SimpleNamespace(fields=fields, shared=shared, n_inputs=3, expansion=expansion)

    for n_inputs, n_bytes in ((0, 0), (10, 0), (0, 1000), (100, 3000)):
        effort = Effort(n_inputs, n_bytes)
        effort.add_fields(7, 11, 13)
        effort.add_fields(1, 2**20 + 128 * n_inputs + n_bytes - 7 * 24, 0)
        with pytest.raises(ModelFileError, match="overlap too much"):
            effort.add_fields(1, 0, 1)
        effort.add_work(plan(5, 3, shared=True), SimpleNamespace(expand=True, n_expanded=7, n_stored=100))
        effort.add_work(plan(5, 3, shared=False), SimpleNamespace(expand=True, n_expanded=7, n_stored=100))
        effort.add_work(plan(5, 3, shared=False), SimpleNamespace(expand=False, n_stored=0))
        done = 5 * (40_000 + 700 + 100) + 5 * (40_000 + 700) + 100 + 5 * 10_000
        rest = 2**28 + 2**17 * n_inputs + 32 * n_bytes - done
        effort.add_work(plan(1, 1, shared=False), SimpleNamespace(expand=False, n_stored=rest - 10_000))
        with pytest.raises(ModelFileError, match="too much work"):
            effort.add_work(plan(0, 1, shared=False), SimpleNamespace(expand=False, n_stored=1))
    effort = Effort(2**24, 5)
    effort.add_fields(1, 2**26 + 5, 0)
    with pytest.raises(ModelFileError, match="overlap too much"):
        effort.add_fields(1, 1, 0)


def test_a_pipeline_that_is_told_to_speak_by_a_number_is_saved(tmp_path):
    X, y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 2
    pipeline = Pipeline([("first", GSFA(2)), ("second", GSFA(1))]).fit(X, y)
    pipeline.verbose = 1
    save(pipeline, tmp_path / "model.higsfa")
    assert load(tmp_path / "model.higsfa").verbose is True
