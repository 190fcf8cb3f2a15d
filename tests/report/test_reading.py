"""Files of a run folder are believed only after they have been checked."""

import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest

from higsfa.report import ReportError
from higsfa.report.arrays import MAX_NPZ
from higsfa.report.reading import MAX_METRICS, read_run


def put(record, path, value):
    """Set ``record["a"][0]["b"]`` for the path ``("a", 0, "b")``."""
    *parents, last = path
    for key in parents:
        record = record[key]
    record[last] = value


def test_records_hold_what_the_files_say(fake_run, tmp_path):
    run = read_run(fake_run.write(tmp_path))
    source = fake_run.metrics["methods"][0]
    assert run.metrics.main.name == "HiGSFA"
    assert run.metrics.main.labels["age"].mae.mean == source["labels"]["age"]["mae"]["mean"]
    assert run.metrics.main.delta.test == tuple(source["delta"]["test"])
    assert [layer.nodes for layer in run.metrics.layers] == [961, 465, 225, 105, 49, 9, 1]
    assert run.metrics.sensitivity[1].rate["gender"] == pytest.approx(0.966)
    assert ("packages numpy", "2.4.6") in run.environment
    assert run.config == fake_run.config
    for name in ("age", "gender", "race"):
        assert run.predictions.truth[name].tolist() == fake_run.truth[name].tolist()
    np.testing.assert_array_equal(run.predictions.estimate["age"], fake_run.estimates["age"])
    np.testing.assert_array_equal(run.examples.reconstructions, fake_run.examples["reconstructions"])


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
        (("title",), "x" * 2000, "title"),
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
        ((*METHOD, "labels", "gender", "confusion"), [[1, -2], [0, 1]], "methods[0].labels.gender.confusion"),
        ((*METHOD, "labels", "gender", "rate", "mean"), 93.0, "methods[0].labels.gender.rate.mean"),
        (("layers", 0, "layer"), "1", "layers[0].layer"),
        (("sensitivity", 2, "mae", "age"), [], "sensitivity[2].mae.age"),
        (("warnings",), "hot", "warnings"),
    ],
)
def test_a_wrong_value_is_refused_by_file_and_key(fake_run, tmp_path, path, value, key):
    put(fake_run.metrics, path, value)
    with pytest.raises(ReportError) as error:
        read_run(fake_run.write(tmp_path))
    assert str(error.value).startswith(f"metrics.json: {key} must be ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "metrics.json is no JSON"),
        (b"\xff\xfe", "metrics.json is not UTF-8"),
        (b'{"format": NaN}', "metrics.json holds NaN"),
        (b'{"format": 1, "n_folds": 1e999}', "metrics.json holds 1e999"),
        (b"[" * 200_000, "metrics.json is nested too deeply"),
        (b'{"format": ' + b"1" * 5000 + b"}", "metrics.json is no JSON"),
        (b"[]", "metrics.json: the file must be an object, found a list"),
        (b" " * (MAX_METRICS + 1), "metrics.json is larger than 16 MiB"),
    ],
    ids=["cut", "encoding", "nan", "infinite", "deep", "digits", "list", "large"],
)
def test_a_broken_metrics_file_is_refused(tmp_path, content, message):
    (tmp_path / "metrics.json").write_bytes(content)
    with pytest.raises(ReportError, match=message):
        read_run(tmp_path)


def test_a_folder_without_metrics_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(ReportError, match=r"holds no metrics\.json; give the folder"):
        read_run(tmp_path)


def test_only_metrics_must_be_there(fake_run, tmp_path):
    (tmp_path / "metrics.json").write_text(json.dumps(fake_run.metrics), encoding="utf-8")
    run = read_run(tmp_path)
    assert run.predictions is None
    assert run.config is None
    assert run.environment == ()
    assert run.examples.images is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("images", np.array([b"text"]), r"images must hold real numbers, found \|S4"),
        ("images", np.zeros((16, 64)), "images must hold an array of at most"),
        ("images", np.zeros((16, 64, 64), dtype=int), "images must hold real numbers"),
        ("reconstructions", np.zeros((3, 16, 64, 63), dtype="f4"), "reconstructions must hold as many and as large"),
        ("reconstruction_names", np.array(["PCA"]), "reconstruction_names must hold 3 names"),
        ("reconstruction_names", np.array([b"a", b"b", b"c"]), "reconstruction_names must hold text"),
        ("feature_rows", np.arange(999), "feature_rows must hold 1000 rows"),
        ("feature_rows", np.arange(1000) + 1000, "feature_rows must hold rows of predictions.csv"),
        ("feature_rows", np.arange(1000) - 1, "feature_rows must hold rows of predictions.csv"),
    ],
)
def test_wrong_arrays_are_refused_by_name(fake_run, tmp_path, key, value, message):
    fake_run.examples[key] = value
    with pytest.raises(ReportError, match=f"examples.npz: {message}"):
        read_run(fake_run.write(tmp_path))


def with_entry(folder, name, content, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(folder / "examples.npz", "w", compression) as archive:
        archive.writestr(name, content)


def npy_header(shape, descr="<f4"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize("shape", [(64, 4096, 4096), (10**9, 64, 64)])
def test_a_header_that_claims_too_much_is_refused_before_memory_is_taken(fake_run, tmp_path, shape):
    fake_run.write(tmp_path)
    with_entry(tmp_path, "images.npy", npy_header(shape))
    tracemalloc.start()
    try:
        with pytest.raises(ReportError, match=r"examples.npz: images must hold an array of at most"):
            read_run(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def test_an_array_that_unpacks_to_too_much_is_refused(fake_run, tmp_path):
    fake_run.write(tmp_path)
    with_entry(tmp_path, "images.npy", npy_header((1, 2, 2)) + bytes(70 * 2**20))
    with pytest.raises(ReportError, match="'images' cannot be read: it takes 73,400,"):
        read_run(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "no zip", "short array", "checksum", "objects", "negative"])
def test_a_damaged_archive_is_refused(fake_run, tmp_path, damage):
    path = fake_run.write(tmp_path) / "examples.npz"
    data = bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "no zip":
        path.write_bytes(b"hello")
    elif damage == "objects":
        with_entry(tmp_path, "images.npy", npy_header((1,), "|O") + bytes(8))
    elif damage == "negative":
        with_entry(tmp_path, "images.npy", npy_header((-1, 64, 64)))
    elif damage == "short array":
        with_entry(tmp_path, "images.npy", npy_header((1, 2, 2)) + bytes(3))
    else:
        data[2000:2100] = bytes(100)
        path.write_bytes(data)
    with pytest.raises(ReportError, match=r"examples\.npz cannot be read"):
        read_run(tmp_path)


def test_a_large_archive_is_refused_unopened(fake_run, tmp_path):
    with open(fake_run.write(tmp_path) / "examples.npz", "wb") as file:
        file.truncate(MAX_NPZ + 1)
    with pytest.raises(ReportError, match=r"examples\.npz is larger than 32 MiB"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("age,age_estimate\n20,21\n20\n", "predictions.csv: row 2 has 1 fields, but the header has 2"),
        ("age,age_estimate\n20,old\n", "predictions.csv: row 1 of age must be a number, found 'old'"),
        ("age,age_estimate\n20,inf\n", "predictions.csv: row 1 of age must be a number"),
        ('age,age_estimate\n20,"21\n', "predictions.csv is no CSV file"),
        (b"age,age_estimate\n20,\xff\n", "predictions.csv is no CSV file in UTF-8"),
        ("age,age_estimate\n20," + "1" * 200_000 + "\n", "predictions.csv is no CSV file"),
    ],
)
def test_a_broken_table_of_predictions_is_refused(fake_run, tmp_path, table, message):
    fake_run.examples = None
    fake_run.write(tmp_path)
    (tmp_path / "predictions.csv").write_bytes(table if isinstance(table, bytes) else table.encode())
    with pytest.raises(ReportError, match=message):
        read_run(tmp_path)


def test_missing_values_of_predictions_stay_missing(fake_run, tmp_path):
    fake_run.examples = None
    fake_run.write(tmp_path)
    (tmp_path / "predictions.csv").write_text("age,age_estimate\n,21\nnan,3\n20,22\n")
    truth = read_run(tmp_path).predictions.truth["age"]
    np.testing.assert_array_equal(truth, [np.nan, np.nan, 20])
