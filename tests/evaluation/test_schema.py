"""metrics.json: what train writes is read back as it was, and strangers' files are refused by file and place."""

import copy
import json
import re

import pytest
from pydantic import TypeAdapter, ValidationError

from higsfa.evaluation import schema
from higsfa.evaluation.schema import Metrics, ReportError, checked, read_json, read_metrics


@pytest.fixture(scope="module")
def written(real):
    return json.loads((real.folder / "metrics.json").read_text("utf-8"))


@pytest.fixture
def content(written):
    return copy.deepcopy(written)


def at(record, path):
    """``record["a"][0]["b"]`` for the path ``("a", 0, "b")``."""
    for key in path:
        record = record[key]
    return record


def put(record, path, value):
    at(record, path[:-1])[path[-1]] = value


def read(content):
    return checked(Metrics, json.loads(json.dumps(content)), "metrics.json")


# ---------------------------------------------------------------------------------------------- reading and writing


def test_the_file_is_read_and_written_back_as_it_was(real, written):
    record = read_metrics(real.folder / "metrics.json")
    assert record.plain() == written
    assert record.to_json() == (real.folder / "metrics.json").read_bytes()


def test_the_schema_describes_every_field_that_train_writes(real, tmp_path, monkeypatch):
    from higsfa.experiments import load_config, train, with_values
    from real_run import QUICK

    given = []
    made = Metrics.of
    monkeypatch.setattr(Metrics, "of", lambda content: given.append(content) or made(content))
    config = with_values(load_config(real.config), {**QUICK, "comparison": {"methods": ["pca", "chance"]}})
    train(config, tmp_path / "run")
    (content,) = given
    assert made(content).plain() == schema.plain(content)


def test_values_stand_where_the_file_has_them(content):
    record = read(content)
    main = content["methods"][0]
    assert record.main.name == main["name"]
    assert record.main.seconds.fit == main["seconds"]["fit"]
    assert record.main.reconstruction_error.global_ == main["reconstruction_error"]["global"]
    assert record.main.scores(record.labels[0]).mae.mean == main["labels"]["age"]["mae"]["mean"]
    assert record.main.scores(record.labels[2]).confusion == tuple(map(tuple, main["labels"]["race"]["confusion"]))
    assert [label.is_numeric for label in record.labels] == [True, False, False, True]


def test_absent_fields_and_null_mean_the_same(content):
    for key in ("created", "higsfa", "n_folds", "layers", "sensitivity", "warnings"):
        content[key] = None
    null = read(content)
    for key in ("created", "higsfa", "n_folds", "layers", "sensitivity", "warnings"):
        del content[key]
    assert read(content) == null
    content["methods"][0]["labels"]["age"] = None
    record = read(content)
    assert record.main.scores(record.labels[0]) == schema.LabelScores()


def test_fields_of_later_versions_are_ignored(content):
    plain = read(content).plain()
    content["later"] = content["methods"][0]["later"] = content["methods"][0]["labels"]["age"]["later"] = {"x": [None]}
    assert read(content).plain() == plain


def test_numbers_that_are_not_finite_and_halves_of_characters_are_written_as_null_and_question_marks(content):
    put(content, ("methods", 0, "labels", "age", "by_label", "mae", 0), float("nan"))
    put(content, ("layers", 0, "mean_delta_1"), float("inf"))
    content["warnings"] = ["left out: 0\udcff.jpg"]
    found = json.loads(Metrics.of(content).to_json())
    assert found["methods"][0]["labels"]["age"]["by_label"]["mae"][0] is None
    assert found["layers"][0]["mean_delta_1"] is None
    assert found["warnings"] == ["left out: 0?.jpg"]


def test_a_file_too_large_for_its_readers_goes_without_classes_and_confusions(content, tmp_path, monkeypatch):
    content["labels"][2]["classes"] = [f"person {i}" for i in range(20_000)]
    record = read(content)
    for limit, whole in ((len(record.to_json()), True), (len(record.to_json()) - 1, False)):
        monkeypatch.setattr(schema, "MAX_METRICS", limit)
        (tmp_path / "metrics.json").write_bytes(record.to_json())
        again = read_metrics(tmp_path / "metrics.json")
        assert (again.labels[2].classes is not None) == whole
        assert (again.main.scores(again.labels[2]).confusion is not None) == whole
        assert again.main.scores(again.labels[0]) == record.main.scores(record.labels[0])


def test_classes_too_many_to_name_are_left_out_when_they_are_written(content, monkeypatch):
    monkeypatch.setattr(schema, "MAX_CLASSES", 2)
    record = Metrics.of(content)
    assert [label.classes and len(label.classes) for label in record.labels] == [None, 2, None, None]


def test_texts_are_cut_only_on_request(content, tmp_path):
    content["title"], content["warnings"] = "t" * 1001, ["w" * 1000, "w" * 5000]
    content["labels"][0]["name"] = "n" * 1001
    content["methods"][0]["labels"] = {"n" * 1001: {"mae": {"mean": 1.5}}}
    (tmp_path / "metrics.json").write_text(json.dumps(content))
    whole, cut = read_metrics(tmp_path / "metrics.json"), read_metrics(tmp_path / "metrics.json", max_text=1000)
    assert whole.title == "t" * 1001
    assert cut.title == "t" * 1000 + "…"
    assert cut.warnings == ("w" * 1000, "w" * 1000 + "…")
    for record in (whole, cut):
        assert record.main.scores(record.labels[0]).mae.mean == 1.5


def test_classes_may_be_numbers_and_truth_values(content):
    content["labels"][1]["classes"] = [1, 2.5, True, "x"]
    assert read(content).labels[1].classes == ("1", "2.5", "True", "x")


# ---------------------------------------------------------------------------------------------- wrong values

METHOD = ("methods", 0)
AGE = (*METHOD, "labels", "age")


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        (("format",), 2, "format"),
        (("format",), True, "format"),
        (("format",), "1", "format"),
        (("title",), 5, "title"),
        (("title",), "\ud800", "title"),
        (("data", "pixel_range"), [0, 1, 2], "data.pixel_range"),
        (("data", "pixel_range"), [1, 1], "data.pixel_range"),
        (("data", "cropping"), "nose", "data.cropping"),
        (("data",), [], "data"),
        (("data", "n_train"), -1, "data.n_train"),
        (("data", "n_test"), 1.5, "data.n_test"),
        (("labels", 0, "kind"), "ordinal", "labels[0].kind"),
        (("labels", 1, "classes"), "fm", "labels[1].classes"),
        (("methods",), {}, "methods"),
        ((*METHOD, "role"), "comparison", "methods"),
        ((*METHOD, "role"), ["main"], "methods[0].role"),
        ((*METHOD, "n_features"), "75", "methods[0].n_features"),
        ((*METHOD, "seconds", "fit"), "long", "methods[0].seconds.fit"),
        ((*METHOD, "delta", "test"), [0.1, "x"], "methods[0].delta.test[1]"),
        ((*METHOD, "delta", "test"), [0.1] * 5000, "methods[0].delta.test"),
        ((*METHOD, "reconstruction_error"), 0.2, "methods[0].reconstruction_error"),
        ((*AGE, "mae", "mean"), None, "methods[0].labels.age.mae.mean"),
        ((*AGE, "mae", "mean"), True, "methods[0].labels.age.mae.mean"),
        ((*AGE, "mae", "mean"), 10**300, "methods[0].labels.age.mae.mean"),
        ((*AGE, "mae", "se"), "0.1", "methods[0].labels.age.mae.se"),
        ((*AGE, "cumulative", "scores"), [0.5], "methods[0].labels.age.cumulative.scores"),
        ((*AGE, "cumulative", "scores", 3), 46.0, "methods[0].labels.age.cumulative.scores[3]"),
        ((*AGE, "by_label", "mae"), [1.0], "methods[0].labels.age.by_label.mae"),
        ((*METHOD, "labels", "gender", "confusion"), [[1, 2]], "methods[0].labels.gender.confusion"),
        ((*METHOD, "labels", "gender", "confusion"), [[1, -2], [0, 1]], "methods[0].labels.gender.confusion[0][1]"),
        ((*METHOD, "labels", "gender", "confusion"), [[1, 0], [0.5, 1]], "methods[0].labels.gender.confusion[1][0]"),
        ((*METHOD, "labels", "gender", "confusion"), [[1] * 101] * 101, "methods[0].labels.gender.confusion[0]"),
        ((*METHOD, "labels", "a\nb"), 3, "methods[0].labels.a b"),
        ((*METHOD, "labels"), {str(i): None for i in range(101)}, "methods[0].labels"),
        ((*METHOD, "labels", "\ud800"), None, "methods[0].labels.\ufffd\ufffd\ufffd.[key]"),
        ((*AGE, "mae", "mean"), 10**400, "methods[0].labels.age.mae.mean"),
        ((*AGE, "by_label", "count", 0), -1, "methods[0].labels.age.by_label.count[0]"),
        (("labels", 1, "classes"), ["a", None], "labels[1].classes[1]"),
        ((*METHOD, "labels", "gender", "rate", "mean"), 93.0, "methods[0].labels.gender.rate.mean"),
        (("layers", 0, "layer"), "1", "layers[0].layer"),
        (("sensitivity", 1, "mae", "age"), [], "sensitivity[1].mae.age"),
        (("warnings",), "hot", "warnings"),
    ],
)
def test_a_wrong_value_is_refused_by_file_and_key(content, tmp_path, path, value, key):
    put(content, path, value)
    (tmp_path / "metrics.json").write_text(json.dumps(content))
    with pytest.raises(ReportError) as error:
        read_metrics(tmp_path / "metrics.json", max_text=1000)
    assert str(error.value).startswith(f"metrics.json: {key} must be ")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("path", [("format",), ("data",), ("labels", 0, "kind"), (*AGE, "mae", "mean"), ("methods",)])
def test_a_missing_value_is_named(content, path):
    del at(content, path[:-1])[path[-1]]
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)[1:]
    with pytest.raises(ReportError, match=f"^metrics.json: {re.escape(place)} is missing$"):
        read(content)


def test_a_range_needs_two_values(content):
    content["data"]["pixel_range"] = [0]
    with pytest.raises(ReportError, match=r"^metrics\.json: data\.pixel_range\[1\] is missing$"):
        read(content)


def test_messages_say_what_was_expected_and_what_was_found(content):
    for path, value, words in (
        (AGE, [], "labels.age must be an object, found a list"),
        ((*AGE, "mae"), "x" * 100, "age.mae must be an object, found '" + "x" * 79 + "$"),
        ((*AGE, "mae", "mean"), None, "mean must be a valid number, found nothing"),
        (("labels",), {}, "labels must be a list, found an object"),
        (("data", "n_test"), 1.5, "data.n_test must be a valid integer, found 1.5"),
        (("data", "cropping"), "nose", "data.cropping must be 'eyes' or 'centre', found 'nose'"),
        (("format",), 9, "format must be 1, the only format that this version of higsfa reads, found 9"),
    ):
        changed = copy.deepcopy(content)
        put(changed, path, value)
        with pytest.raises(ReportError, match=words):
            read(changed)
    with pytest.raises(ReportError, match=r"^metrics\.json: the file must be an object, found a list$"):
        read([])


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        (schema.Number, [0, -1.5, 1e100, -1e100], [1e101, -1e101, True, "1", None, float("nan"), float("inf")]),
        (schema.Fraction, [0, 0.5, 1], [-0.01, 1.01, 2, True, float("nan")]),
        (schema.Whole, [0, 10**15], [-1, 10**15 + 1, 1.0, True, "1"]),
        (schema.Text, ["", "x" * 5000], [1, None, "\ud800", "x\udfff"]),
        (schema.Numbers, [[], [0.5] * 10_000], [[0.5] * 10_001, [None], {}, "abc", None]),
        (schema.Gappy, [[None, 1] * 5000], [[None] * 10_001, ["x"]]),
        (schema.Deltas, [[None, 1] * 50], [[None] * 101]),
        (schema.Classes, [["a"] * 1_000_000], [["a"] * 1_000_001]),
        (schema.Confusion, [[], [[1] * 100] * 100], [[[1] * 101] * 101, [[1, 2]], [[1], [2]]]),
    ],
)
def test_values_are_read_as_one_type_or_refused(kind, taken, refused):
    adapter = TypeAdapter(kind)
    for value in taken:
        adapter.validate_python(value)
    for value in refused:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)


@pytest.mark.parametrize(
    ("path", "most"),
    [
        (("methods",), 100),
        (("labels",), 100),
        (("layers",), 100),
        (("sensitivity",), 100),
        (("warnings",), 1000),
        (("methods", 0, "delta", "test"), 100),
        (("methods", 0, "delta", "train"), 100),
        (("sensitivity", 0, "delta_test"), 100),
        (("data", "image_shape"), 4),
    ],
)
def test_lists_have_most_entries(content, path, most):
    entries = at(content, path)
    last = {"warnings": "w", "labels": content["labels"][0]}.get(path[-1]) or entries[-1]
    put(content, path, (entries + [last] * most)[:most])
    read(content)
    put(content, path, (entries + [last] * (most + 1))[: most + 1])
    with pytest.raises(ReportError, match=rf"at most {most:,} entries"):
        read(content)


def test_a_million_wrong_values_are_one_error(content):
    """Errors are objects too; a file of wrong values must not grow into gigabytes of them."""
    content["labels"][1]["classes"] = [None] * 500_000
    content["methods"][0]["labels"]["age"]["by_label"]["mae"] = ["x"] * 10_000
    content["methods"] = content["methods"] + [3] * 50
    with pytest.raises(ValidationError) as error:
        Metrics.model_validate(content)
    assert error.value.error_count() <= 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "a.json is not JSON"),
        (b"\xff\xfe", "a.json is not UTF-8"),
        (b'{"format": NaN}', "a.json holds NaN"),
        (b'{"x": -1e999}', "a.json holds -1e999"),
        (b"[" * 200_000, "a.json is not JSON: maximum recursion"),
        (b"1" * 5000, "a.json is not JSON"),
        (b" " * 10_001 + b"1", "a.json is larger than"),
    ],
)
def test_broken_json_is_refused(tmp_path, text, message):
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(ReportError, match=message):
        read_json(tmp_path / "a.json", 10_000 if text[:1] == b" " else 10**6)


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("by_group", "gender", "count"), [1], "by_group.gender.count must be a list as long as group"),
        (("by_group", "gender", "score"), ["x", 1.0], r"by_group.gender.score\[0\]"),
        (("by_group", "gender", "group"), ["a"] * 101, "by_group.gender.group must be of at most 100 entries"),
        (("calibration", "rate"), [2.0], r"calibration.rate\[0\]"),
        (("calibration", "error"), 1.5, "calibration.error"),
        (("calibration", "count"), [1] * 99, "calibration.count must be a list as long as probability"),
    ],
)
def test_wrong_groups_and_calibrations_are_refused_by_their_place(content, path, value, place):
    scores = content["methods"][0]["labels"]["race"]
    put(scores, path, value)
    with pytest.raises(ReportError, match=place):
        read(content)
