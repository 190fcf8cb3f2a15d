"""Files of a run folder are believed only after they have been checked."""

import io
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from higsfa.evaluation.schema import MAX_METRICS, MAX_NPZ
from higsfa.report import ReportError, page, reading
from higsfa.report import reading as tables
from higsfa.report.reading import read_run


def test_records_hold_what_the_files_say(real, changed):
    run = read_run(real.folder)
    assert run.metrics.plain() == changed.metrics
    assert run.name == "spots"
    assert ("packages numpy", np.__version__) in run.environment
    assert ("processors", str(changed.environment["processors"])) in run.environment
    assert run.config == changed.config
    for name in ("age", "gender", "race", "strength"):
        np.testing.assert_array_equal(run.truth[name], changed.predictions[name])
        np.testing.assert_array_equal(run.estimate[name], changed.predictions[f"{name}_estimate"])
    assert all(len(run.truth[name]) == 200 for name in run.truth)
    for key, array in changed.examples.items():
        np.testing.assert_array_equal(getattr(run.examples, key), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "metrics.json is not JSON"),
        (b"\xff\xfe", "metrics.json is not UTF-8"),
        (b'{"format": NaN}', "metrics.json holds NaN"),
        (b'{"format": 1, "n_folds": 1e999}', "metrics.json holds 1e999"),
        (b"[" * 200_000, "metrics.json is not JSON: maximum recursion"),
        (b'{"format": ' + b"1" * 5000 + b"}", "metrics.json is not JSON"),
        (b"[]", "metrics.json: the file must be an object, found a list"),
        (b" " * (MAX_METRICS + 1), "metrics.json is larger than"),
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


def test_only_metrics_must_be_there(changed, tmp_path):
    (tmp_path / "metrics.json").write_text(json.dumps(changed.metrics), encoding="utf-8")
    run = read_run(tmp_path)
    assert run.truth == run.estimate == {}
    assert run.config is None
    assert run.environment == ()
    assert run.examples.images is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("images", np.array([b"text"]), r"images must hold real numbers, found \|S4"),
        ("images", np.zeros((16, 64)), "images must hold an array of at most"),
        ("images", np.zeros((16, 64, 64), dtype=int), "images must hold real numbers"),
        ("reconstructions", np.zeros((3, 16, 12, 11), dtype="f4"), "reconstructions must hold as many and as large"),
        ("reconstruction_names", np.array(["PCA"]), "reconstruction_names must hold 3 names"),
        ("reconstruction_names", np.array([b"a", b"b", b"c"]), "reconstruction_names must hold text"),
        ("feature_rows", np.arange(99), "feature_rows must hold 100 rows"),
        ("feature_rows", np.arange(100) + 101, "feature_rows must hold rows of predictions.csv"),
        ("feature_rows", np.arange(100) - 1, "feature_rows must hold rows of predictions.csv"),
    ],
)
def test_wrong_arrays_are_refused_by_name(changed, tmp_path, key, value, message):
    changed.examples[key] = value
    with pytest.raises(ReportError, match=f"examples.npz: {message}"):
        read_run(changed.write(tmp_path))


def with_entry(folder, name, content, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(folder / "examples.npz", "w", compression) as archive:
        archive.writestr(name, content)


def npy_header(shape, descr="<f4"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize("shape", [(64, 4096, 4096), (10**9, 64, 64)])
def test_a_header_that_claims_too_much_is_refused_before_memory_is_taken(changed, tmp_path, shape):
    changed.write(tmp_path)
    with_entry(tmp_path, "images.npy", npy_header(shape))
    tracemalloc.start()
    try:
        with pytest.raises(ReportError, match=r"examples.npz: images must hold an array of at most"):
            read_run(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def test_an_array_that_unpacks_to_too_much_is_refused(changed, tmp_path):
    changed.write(tmp_path)
    with_entry(tmp_path, "images.npy", npy_header((1, 2, 2)) + bytes(70 * 2**20))
    with pytest.raises(ReportError, match="'images' cannot be read: it takes 73,400,"):
        read_run(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "no zip", "short array", "checksum", "objects", "negative"])
def test_a_damaged_archive_is_refused(changed, tmp_path, damage):
    path = changed.write(tmp_path) / "examples.npz"
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


def test_a_large_archive_is_refused_unopened(changed, tmp_path):
    with open(changed.write(tmp_path) / "examples.npz", "wb") as file:
        file.truncate(MAX_NPZ + 1)
    with pytest.raises(ReportError, match=r"examples\.npz is larger than 32 MiB"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("age,age_estimate\n20,21\n20\n", "predictions.csv: row 2 has 1 fields, but the header has 2"),
        ("age,age_estimate\n20,old\n", "predictions.csv: row 1 of age_estimate must be a number, found 'old'"),
        ("age,age_estimate\n20,inf\n", "predictions.csv: row 1 of age_estimate must be a number"),
        ('age,age_estimate\n20,"21\n', "predictions.csv is no CSV file"),
        (b"age,age_estimate\n20,\xff\n", "predictions.csv is no CSV file in UTF-8"),
        ("age,age_estimate\n20," + "1" * 200_000 + "\n", "predictions.csv is no CSV file"),
    ],
)
def test_a_broken_table_of_predictions_is_refused(changed, tmp_path, table, message):
    changed.examples = None
    changed.write(tmp_path)
    (tmp_path / "predictions.csv").write_bytes(table if isinstance(table, bytes) else table.encode())
    with pytest.raises(ReportError, match=message):
        read_run(tmp_path)


def test_an_environment_that_is_no_object_is_refused(changed, tmp_path):
    changed.environment = [1]
    with pytest.raises(ReportError, match=r"environment\.json: the file must be an object"):
        read_run(changed.write(tmp_path))


def test_missing_values_of_predictions_stay_missing(changed, tmp_path):
    changed.examples = None
    changed.write(tmp_path)
    text = "age,age_estimate,gender,gender_estimate,x\n,21,,F,a\nnan,3,M,M,b\n20,22,'=1,F,c\n"
    (tmp_path / "predictions.csv").write_text(text)
    found = read_run(tmp_path)
    np.testing.assert_array_equal(found.truth["age"], [np.nan, np.nan, 20])
    assert found.truth["gender"].tolist() == [None, "M", "=1"]
    assert set(found.truth) == set(found.estimate) == {"age", "gender"}


# ---------------------------------------------------------------------------------------------- what train may write


def test_long_texts_are_cut_and_many_classes_are_no_error(changed, tmp_path, painted):
    changed.metrics["warnings"] = ["w" * 5000]
    changed.metrics["title"] = "t" * 1001
    changed.metrics["labels"][1]["classes"] = [f"person {i}" for i in range(5000)]
    changed.metrics["methods"][0]["labels"]["gender"]["confusion"] = None
    changed.environment = {"text": "e" * 20_000, "list": [1, {"a": None}]}
    run = read_run(changed.write(tmp_path))
    assert run.metrics.warnings == ("w" * 1000 + "…",)
    assert run.metrics.title == "t" * 1000 + "…"
    assert len(run.metrics.labels[1].classes) == 5000
    assert run.environment == (("text", "e" * 10_000 + "…"), ("list", '[1, {"a": null}]'))
    assert page.sections(run)[0].figures[-1].title == "Confusion matrix, race"


@pytest.mark.parametrize("limit", ["MAX_ROWS", "MAX_PREDICTIONS"])
def test_a_table_that_is_too_large_for_figures_is_left_out_with_a_note(changed, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(tables, limit, 199 if limit == "MAX_ROWS" else 1000)
    run = read_run(changed.write(tmp_path))
    assert run.truth == run.estimate == {}
    assert run.metrics.warnings[0].startswith("predictions.csv ")
    assert run.metrics.warnings[0].endswith("figures of single samples are left out")
    monkeypatch.setattr(tables, "MAX_ROWS", 200)
    monkeypatch.setattr(tables, "MAX_PREDICTIONS", (tmp_path / "predictions.csv").stat().st_size)
    assert len(read_run(tmp_path).truth["age"]) == 200


@pytest.mark.parametrize("name", ["metrics.json", "config.toml", "environment.json", "predictions.csv", "examples.npz"])
def test_pipes_are_not_waited_for(changed, tmp_path, name, alarm):
    changed.write(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    if name == "metrics.json":
        with pytest.raises(ReportError, match="holds no metrics"):
            read_run(tmp_path)
    else:
        read_run(tmp_path)


# ---------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("key", "shape", "fits"),
    [
        ("images", (64, 1, 1), True),
        ("images", (65, 1, 1), False),
        ("images", (1, 4096, 1), True),
        ("images", (1, 4097, 1), False),
        ("images", (1, 1, 4096), True),
        ("images", (1, 1, 4097), False),
        ("features", (20_000, 1), True),
        ("features", (20_001, 1), False),
        ("features", (1, 100), True),
        ("features", (1, 101), False),
        ("feature_rows", (20_000,), True),
        ("feature_rows", (20_001,), False),
        ("reconstruction_names", (32,), True),
        ("reconstruction_names", (33,), False),
    ],
)
def test_arrays_have_largest_shapes(tmp_path, key, shape, fits):
    dtypes = {"feature_rows": np.int64, "reconstruction_names": "<U1"}
    np.savez(tmp_path / "examples.npz", **{key: np.zeros(shape, dtype=dtypes.get(key, np.float32))})
    if fits:
        reading.read_examples(tmp_path / "examples.npz", 0)
    else:
        with pytest.raises(ReportError, match=f"{key} must hold an array of at most"):
            reading.read_examples(tmp_path / "examples.npz", 0)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions_of_headers(tmp_path, version):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.zeros((2, 3, 3), np.float32), version=version)
    with_entry(tmp_path, "images.npy", file.getvalue())
    if version == (1, 0):
        assert reading.read_examples(tmp_path / "examples.npz", 0).images.shape == (2, 3, 3)
    else:  # np.save writes these for very long headers and field names only, which no run has
        with pytest.raises(ReportError, match=r"no header as np\.save writes one"):
            reading.read_examples(tmp_path / "examples.npz", 0)


def test_rows_of_features_lie_in_the_table_up_to_its_last_row(tmp_path):
    for rows, n_rows, fits in (([0, 9], 10, True), ([0, 10], 10, False), ([-1, 3], 10, False), ([99], 0, True)):
        features = np.zeros((len(rows), 2), np.float32)
        np.savez(tmp_path / "examples.npz", features=features, feature_rows=np.array(rows))
        if fits:
            assert reading.read_examples(tmp_path / "examples.npz", n_rows).feature_rows.tolist() == rows
        else:
            with pytest.raises(ReportError, match="0 to 9"):
                reading.read_examples(tmp_path / "examples.npz", n_rows)
