"""LabelHead in model files: estimates come back to the bit, and what is damaged is refused."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline

from higsfa import GSFA, SFA, HiGSFA, LabelClassifier, LabelHead, LabelRegressor, Layer, load, save
from higsfa.graphs import ClusteredGraph, SerialGraph
from higsfa.io.container import Tensors
from model_files import accepted, edited, inner_header, put_together, refused, taken_apart


def features(n=300, d=5, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.uniform(16, 77, n)
    Y = rng.standard_normal((n, d))
    Y[:, 0] += age / 20
    Y[:, 1] += np.digitize(age, [30, 50])
    return Y, age


def labels(age):
    """One label of every kind that a class can be of."""
    third = np.digitize(age, [30, 50])
    mixed = np.empty(len(age), dtype=object)
    mixed[:] = [(2.5, 7, True)[c] for c in third]
    return {
        "age": age,
        "text": np.array(["young", "süß", "\0😀\ud800x"])[third],
        "objects": np.array(["F", "M", "another"], dtype=object)[third],
        "mixed": mixed,
        "truth": third > 0,
        "byte": third.astype(np.uint8) * 100,
        "large": third.astype(np.int64) * (2**61),
        "unsigned": third.astype(np.uint64) * (2**61),
        "single": third.astype(np.float32) - 1,
        "half": third.astype(np.float16),
        "wide": np.array(["a", "b", "c"], dtype="U77")[third],
    }


HEADS = {
    "all-labels": LabelHead(
        n_used_features={"age": 3, "text": "cv", "mixed": None},
        n_classes={"age": 7},
        covariance={"age": 0.5},
        cv=np.int64(3),
    ),
    "cv": LabelHead("cv", 5, integer=True, covariance=0.25, cv=4, candidates=np.array([1, 2, 4])),
    "integer": LabelHead(n_used_features=2, integer={"age": True}),
}


def fitted(name):
    Y, age = features()
    return clone(HEADS[name]).fit(Y, labels(age)), 2 * Y


def pipeline():
    images, digit = load_digits(return_X_y=True)
    images = images[:300].reshape(-1, 8, 8)
    y = pd.DataFrame({"size": images.mean(axis=(1, 2)), "digit": digit[:300].astype(str)})
    graph = SerialGraph("size", n_groups=5) + ClusteredGraph("digit")
    net = HiGSFA([Layer((4, 4), (4, 4), 6), Layer((2, 2), None, 6)], graph=graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Pipeline([("net", net), ("head", LabelHead(n_classes={"size": 4}))]).fit(images, y), images


def assert_same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    assert a.tolist() == b.tolist() if a.dtype.kind == "O" else a.tobytes() == b.tobytes()


def assert_same_heads(head, loaded, Y):
    assert type(loaded) is LabelHead
    estimates, again = head.predict(Y), loaded.predict(Y)
    assert type(again) is type(estimates)
    for name in head.label_names_:
        assert_same_bits(estimates[name], again[name])
        assert_same_bits(head.predict_proba(Y, name), loaded.predict_proba(Y, name))
        assert_same_bits(head.classes_[name], loaded.classes_[name])
        assert [type(c) for c in head.classes_[name].tolist()] == [type(c) for c in loaded.classes_[name].tolist()]
    for attribute in (
        "label_names_",
        "n_used_features_",
        "is_numeric_",
        "covariance_",
        "cv_results_",
        "n_features_in_",
        "output_form_",
    ):
        assert getattr(head, attribute) == getattr(loaded, attribute)
    given, kept = head.get_params(), loaded.get_params()
    assert given.keys() == kept.keys()
    for key in given:
        assert np.array_equal(given[key], kept[key])


# ---------------------------------------------------------------------- round trips


@pytest.mark.parametrize("name", HEADS)
def test_a_head_comes_back_to_the_bit(name, tmp_path):
    head, Y = fitted(name)
    save(head, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_same_heads(head, loaded, Y)
    save(loaded, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


@pytest.mark.parametrize("form", ["vector", "table", "frame", "numbered frame"])
def test_the_form_of_the_labels_is_kept(form, tmp_path):
    Y, age = features()
    two = pd.DataFrame({"age": age, "old": age > 50})
    y = {"vector": age, "table": two.to_numpy(float), "frame": two, "numbered frame": two.set_axis([7, 3], axis=1)}[
        form
    ]
    head = LabelHead(n_classes=4).fit(Y, y)
    save(head, tmp_path / "model")
    expected, found = head.predict(Y), load(tmp_path / "model").predict(Y)
    if "frame" in form:
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
    else:
        assert_same_bits(found, expected)


def test_a_pipeline_that_ends_in_a_head_comes_back_to_the_bit(tmp_path):
    model, images = pipeline()
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert [name for name, _ in loaded.steps] == ["net", "head"]
    pd.testing.assert_frame_equal(loaded.predict(images), model.predict(images), check_exact=True)
    assert_same_bits(loaded.predict_proba(images, label="digit"), model.predict_proba(images, label="digit"))
    assert_same_bits(loaded[:-1].transform(images), model[:-1].transform(images))


@pytest.mark.parametrize("cls", [LabelClassifier, LabelRegressor])
def test_classifiers_and_regressors_come_back_as_what_they_were(cls, tmp_path):
    Y, age = features()
    y = np.digitize(age, [30, 50])
    model = make_pipeline(GSFA(n_components=4), cls(cv=3)).fit(Y, y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded[-1]) is cls
    assert_same_bits(loaded.predict(Y), model.predict(Y))
    assert_same_bits(loaded.classes_, model.classes_)
    assert loaded.score(Y, y) == model.score(Y, y)
    assert (is_classifier(loaded), is_regressor(loaded)) == (is_classifier(model), is_regressor(model))
    data = (tmp_path / "model").read_bytes()
    other = {LabelClassifier: LabelRegressor, LabelRegressor: LabelClassifier}[cls]
    header, listing, arrays = taken_apart(data)
    record = header["steps"][1]["model"]
    given = record["params"]
    params = {"n_classes": None, "integer": False} | given
    record |= {"kind": other.__name__, "params": {name: params[name] for name in other().get_params()}}
    assert "one label of its kind" in refused(put_together(header, listing, arrays), tmp_path / "model")
    header, listing, arrays = taken_apart(data)
    header["steps"][1]["model"]["labels"][0]["name"] = "0"
    assert "exactly one label, 0" in refused(put_together(header, listing, arrays), tmp_path / "model")


def test_feature_names_constant_features_and_many_classes(tmp_path):
    Y, _ = features(400)
    person = np.array([f"person {i // 4}" for i in range(400)])
    frame = pd.DataFrame(Y, columns=list("abcde")).assign(c=3.0)
    head = LabelHead().fit(frame, {"who": person, "where": ["here"] * 400})
    save(head, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.feature_names_in_.tolist() == list("abcde")
    assert_same_heads(head, loaded, frame)
    constant = LabelHead().fit(np.ones((30, 2)), np.arange(30) % 2)
    save(constant, tmp_path / "model")
    assert_same_bits(load(tmp_path / "model").predict_proba(Y[:, :2]), constant.predict_proba(Y[:, :2]))


def test_parameters_changed_after_the_fit_are_kept_and_a_loaded_head_can_be_fitted(tmp_path):
    head, Y = fitted("cv")
    head.set_params(n_used_features={"other": 3}, integer=False)
    save(head, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_same_heads(head, loaded, Y)
    Y, age = features(seed=1)
    assert_same_bits(
        loaded.set_params(n_used_features=2).fit(Y, age).predict(Y),
        head.set_params(n_used_features=2).fit(Y, age).predict(Y),
    )


def test_the_file_has_no_pickle_and_plain_names(tmp_path):
    head, _ = fitted("all-labels")
    save(head, tmp_path / "model")
    arrays = safetensors.numpy.load_file(tmp_path / "model")
    assert np.array_equal(arrays["labels.0.classes"], head.classes_["age"])
    assert arrays["labels.4.classes"].tobytes() == b"false\0true"
    assert inner_header((tmp_path / "model").read_bytes())["labels"][4]["class_type"] == "b1"


# ---------------------------------------------------------------------- what cannot be saved


@pytest.mark.parametrize(
    ("head", "y", "error", "message"),
    [
        (LabelHead(regressor=LinearRegression()), "age", TypeError, r"regressor= \(LinearRegression\) cannot be saved"),
        (LabelHead(regressor={0: LogisticRegression()}), "text", TypeError, "regressor="),
        (LabelHead(cv=KFold(3)), "age", TypeError, r"KFold.*set_params\(cv=5\)"),
        (LabelHead(), "bytes", TypeError, "classes of type bytes"),
        (LabelHead(), "dates", TypeError, "classes of type date"),
        (LabelHead(), "one date", TypeError, "classes of type date"),
        (LabelHead(), "long", ValueError, "more than 1,000 characters"),
        (LabelHead(), "tuple", TypeError, r"label \('a', 1\) cannot be saved"),
        (LabelHead(), "real name", TypeError, "label 0.5 cannot be saved"),
    ],
)
def test_what_has_no_place_in_a_file_is_not_saved(head, y, error, message, tmp_path):
    Y, age = features()
    third = np.digitize(age, [30, 50])
    days = pd.date_range("2020-01-01", periods=3).date
    y = {
        "age": age,
        "text": labels(age)["text"],
        "bytes": np.array([b"a", b"b", b"c"])[third],
        "dates": np.array(days, dtype=object)[third],
        "one date": np.full(len(age), days[0], dtype=object),
        "long": np.array(["a" * 1001, "b", "c"])[third],
        "tuple": {("a", 1): age},
        "real name": {0.5: age},
    }[y]
    head = clone(head).fit(Y, y)
    with pytest.raises(error, match=message):
        save(head, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_regressor_that_was_taken_out_after_the_fit_is_found(tmp_path):
    Y, age = features()
    head = LabelHead(regressor={"age": LinearRegression()}).fit(Y, {"age": age}).set_params(regressor=None)
    with pytest.raises(TypeError, match="for label 'age'"):
        save(head, tmp_path / "model")


def test_unfitted_heads_are_not_fitted(tmp_path):
    with pytest.raises(NotFittedError):
        save(LabelHead(), tmp_path / "model")
    X, _ = features()
    model = make_pipeline(SFA(), LabelHead())
    model[0].fit(X)
    with pytest.raises(NotFittedError):
        save(model, tmp_path / "model")


# ---------------------------------------------------------------------- files by hand


def with_array(data, name, array):
    arrays = safetensors.numpy.load(data) | {name: array}
    kept = {key: np.ascontiguousarray(value) for key, value in arrays.items() if value is not None}
    return safetensors.numpy.save(kept, {"higsfa": json.dumps(inner_header(data))})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    models = {name: fitted(name)[0] for name in HEADS} | {"pipeline": pipeline()[0]}
    for name, model in models.items():
        save(model, folder / name)
    return {name: (folder / name).read_bytes() for name in models}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("params.cv", 1, "cv"),
        ("params.cv", None, "cv"),
        ("params.cv", True, "cv"),
        ("params.cv", [[[0], [1]]], "cv"),
        ("params.regressor", None, "unknown or missing"),
        ("params.n_used_features", "all", "n_used_features"),
        ("params.n_used_features", 0, "n_used_features"),
        ("params.n_used_features", 1.5, "n_used_features"),
        ("params.n_used_features", {"age": 1}, "n_used_features"),
        ("params.n_used_features", [["age"]], "n_used_features.0.1: Field required"),
        ("params.n_used_features", [["age", 1], ["age", 2]], "twice"),
        ("params.n_used_features", [[None, 1]], "n_used_features.0.0"),
        ("params.n_classes", "cv", "n_classes"),
        ("params.n_classes", [["age", True]], "n_classes"),
        ("params.integer", [["age", 1]], "integer"),
        ("params.covariance", 1.5, "covariance"),
        ("params.covariance", "full", "covariance"),
        ("params.covariance", [["age", "full"]], "covariance"),
        ("labels.0.covariance", 1.5, "covariance"),
        ("labels.0.mixtures", [], "mixtures"),
        ("labels.1.mixtures", [0.5] * 7, "mixtures must be different"),
        ("labels.1.mixtures", [0.5] * 8, "labels.1.scores"),
        ("params.candidates", [1, "2"], "candidates"),
        ("params.candidates", 3, "candidates"),
        ("output_form", "list", "output_form"),
        ("output_form", [], "output_form"),
        ("output_form", "vector", "exactly one"),
        ("n_features_in", 0, "n_features_in"),
        ("n_features_in", 2, "n_features"),
        ("n_features_in", 10**12, "n_features_in"),
        ("feature_names_in", True, "feature_names_in is missing"),
        ("labels", [], "at least 1 item"),
        ("labels", None, "labels"),
        ("labels.0", 1, "labels.0: a JSON object is needed, found 1"),
        ("labels.0.name", "text", "twice"),
        ("labels.0.name", [1], "labels.0.name"),
        ("labels.0.name", "a" * 1001, "labels.0.name: a text of at most 1,000"),
        ("labels.0.class_type", "f8", "labels.0.classes must be U8"),
        ("labels.1.class_type", None, "labels.1.classes must be F64"),
        ("labels.1.class_type", "U2", "do not fit"),
        ("labels.1.class_type", "U0", "cannot have this type"),
        ("labels.1.class_type", "U99999", "cannot have this type"),
        ("labels.1.class_type", "M8", "cannot have this type"),
        ("labels.1.class_type", "i4", "not of its type"),
        ("labels.6.class_type", "i4", "beyond int32"),
        ("labels.5.class_type", "b1", "not of its type"),
        ("labels.4.class_type", "u1", "not of its type"),
        ("labels.0.n_features", 0, "n_features"),
        ("labels.0.n_features", 6, "n_features"),
        ("labels.0.n_features", 2, "labels.0.projection"),
        ("labels.0.cross_validated", True, "labels.0.tried is missing"),
        ("labels.1.cross_validated", False, "unknown arrays"),
        ("labels.0.more", 1, "unknown or missing"),
    ],
)
def test_headers_that_are_wrong_are_refused(path, value, message, files, tmp_path):
    assert message in refused(edited(files["all-labels"], path, value), tmp_path / "model")


def text(written):
    return np.frombuffer(written, dtype=np.uint8)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("labels.4.classes", text(b"false"), "log_weights"),
        ("labels.4.classes", text(b"false\0true\0true"), "log_weights"),
        ("labels.4.classes", text(b"false\0tru"), "not a class"),
        ("labels.4.classes", text(b""), "not a class"),
        ("labels.1.classes", text(b'"a"\0"b"\0"' + b"c" * 1001 + b'"'), "more than 1,000 characters"),
        ("labels.1.classes", text(b'"a"\0"b"\0' + b"[" * 999), "not a class"),
        ("labels.3.classes", text(b'"a"\0[]\0{}'), "not of its type"),
        ("labels.3.classes", text(b'"a"\0NaN\x001'), "not a class: b'NaN'"),
        ("labels.8.classes", text(b"0.0\x001e300\x001.0"), "do not fit"),
        ("labels.7.classes", text(b"0\0-1\x001"), "beyond uint64"),
        ("labels.0.classes", np.zeros(0), "log_weights"),
        ("labels.0.classes", np.full(7, np.nan), "not finite"),
        ("labels.0.scale", np.array([1.0, 0.0, 1.0]), "positive"),
        ("labels.0.scale", np.array([1.0, -np.inf, 1.0]), "positive"),
        ("labels.0.scale", np.array([1.0, np.nan, 1.0]), "positive"),
        ("labels.0.center", np.array([1.0, np.inf, 1.0]), "not finite"),
        ("labels.0.projection", np.zeros((3, 4)), "more columns"),
        ("labels.0.projection", np.zeros((3, 2)), "labels.0.means"),
        ("labels.0.factors", np.zeros((7, 3, 2)), "labels.0.factors"),
        ("labels.0.log_weights", np.full(7, -np.inf), "log_weights"),
        ("labels.0.log_weights", np.full(7, np.inf), "log_weights"),
        ("labels.0.log_weights", np.full(7, np.nan), "log_weights"),
        ("labels.1.tried", np.array([1, 2, 3, 4, 4]), "different numbers"),
        ("labels.1.tried", np.array([0, 2, 3, 4, 5]), "different numbers"),
        ("labels.1.scores", np.zeros(4), "labels.1.scores"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name, array, message, files, tmp_path):
    assert message in refused(with_array(files["all-labels"], name, array), tmp_path / "model")


def test_every_array_is_needed_and_every_truncation_noticed(files, tmp_path):
    header, listing, payload = taken_apart(files["all-labels"])
    for missing in listing:
        renamed = {("x" if key == missing else key): entry for key, entry in listing.items()}
        assert f"array {missing} is missing" in refused(put_together(header, renamed, payload), tmp_path / "model")
    for length in range(0, len(files["integer"]), 997):
        refused(files["integer"][:length], tmp_path / "model")


def test_a_head_must_be_the_last_step_and_fit_the_step_before(files, tmp_path):
    header, listing, payload = taken_apart(files["pipeline"])
    turned = {"steps.0": "steps.1", "steps.1": "steps.0"}
    renamed = {turned[name[:7]] + name[7:]: entry for name, entry in listing.items()}
    swapped = header | {"steps": header["steps"][::-1]}
    assert "last step" in refused(put_together(swapped, renamed, payload), tmp_path / "model")
    assert "the step before makes 6" in refused(
        edited(files["pipeline"], "steps.1.model.n_features_in", 7), tmp_path / "model"
    )


@pytest.mark.parametrize("item", [b'"x"', b"1", b"[]", b'"\\ud83d\\ude00"', b"[" * 499 + b"]" * 499])
@pytest.mark.parametrize("class_type", ["O", "U1", "U9999", "i8"])
def test_very_many_classes_are_counted_before_they_are_read(item, class_type, files, tmp_path):
    data = edited(files["all-labels"], "labels.3.class_type", class_type)
    bomb = with_array(data, "labels.3.classes", text(b"\0".join([item] * (8_000_000 // len(item)))))
    refused(bomb, tmp_path / "model")


def test_a_gsfa_before_a_head_needs_no_network(tmp_path):
    X, age = features()
    model = make_pipeline(GSFA(3, graph="serial"), LabelHead(integer=True)).fit(X, age)
    save(model, tmp_path / "model")
    assert_same_bits(load(tmp_path / "model").predict(X), model.predict(X))


# ---------------------------------------------------------------------- limits are where the documentation says


@pytest.mark.parametrize(
    ("path", "most", "beyond", "message"),
    [
        ("n_features_in", 2**24, 2**24 + 1, "16777216"),
        ("params.candidates", [1] * 2**16, [1] * (2**16 + 1), "at most 65536 items"),
        ("params.n_used_features", [["a", 1]], [["a", 1, 1]], "at most 2 items"),
        ("params.n_used_features", [[k, 1] for k in range(1000)], [[k, 1] for k in range(1001)], "at most 1000 items"),
        ("params.n_classes", 1, 0, "n_classes"),
        ("params.cv", 2, 1, "cv"),
        ("params.covariance", 1, 2, "covariance"),
        ("labels.0.name", "a" * 1000, "a" * 1001, "1,000"),
    ],
)
def test_a_header_may_go_up_to_its_limits_and_not_beyond(path, most, beyond, message, files, tmp_path):
    accepted(edited(files["all-labels"], path, most), tmp_path / "model")
    assert message in refused(edited(files["all-labels"], path, beyond), tmp_path / "model")


def test_a_class_may_have_1000_characters_as_json(files, tmp_path):
    for n, message in ((998, None), (999, "more than 1,000 characters")):
        data = with_array(files["all-labels"], "labels.3.classes", text(b'"a"\x007\0"' + b"x" * n + b'"'))
        if message is None:
            assert len(accepted(data, tmp_path / "model").classes_["mixed"][2]) == n
        else:
            assert message in refused(data, tmp_path / "model")


def test_memory_beyond_the_arrays_is_counted(files, tmp_path, monkeypatch):
    spent, spend = [], Tensors.spend
    monkeypatch.setattr(Tensors, "spend", lambda self, n: (spent.append(n), spend(self, n))[1])
    head = accepted(files["all-labels"], tmp_path / "model")
    expected = 4000 * len(head.label_names_)
    for j, name in enumerate(head.label_names_):
        expected += 400 * len(head.cv_results_.get(name, ()))
        if not head.is_numeric_[name]:
            classes = head.classes_[name]
            written = safetensors.numpy.load(files["all-labels"])[f"labels.{j}.classes"]
            expected += 4 * len(written) + (200 + classes.dtype.itemsize) * len(classes)
    assert sum(spent) == expected
