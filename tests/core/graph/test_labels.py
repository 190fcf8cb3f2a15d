"""Labels of every type: classes as numpy finds them by sorting, missing values as the types define them."""

import re

import numpy as np
import pandas as pd
import pytest

from higsfa.core.graph import labels
from higsfa.core.graph.labels import (
    as_labels,
    encode_classes,
    find_classes,
    holds_classes,
    label_names,
    missing,
    numeric,
    pick_label,
)

PICK = np.random.default_rng(0).integers(0, 5, 400)
NAMES = np.array(["beta", "alpha", "a rather long name", "", "alphb"])
COMPLETE = {
    "integers": np.array([3, 0, 1, 2, 4])[PICK],
    "integers with gaps": np.array([-7, 30, 2, 400, 5])[PICK],
    "integers far apart": np.array([-(2**62), 2**62, 0, 1, 2**61])[PICK],
    "one integer": np.full(400, 9),
    "bytes of numbers": np.array([-128, 127, 0, 3, -1], dtype=np.int8)[PICK],
    "large unsigned": np.array([2**64 - 1, 2**64 - 2, 2**64 - 9, 2**64 - 4, 2**64 - 3], dtype=np.uint64)[PICK],
    "booleans": PICK > 2,
    "names": NAMES[PICK],
    "bytes": NAMES.astype("S")[PICK],
    "floats": np.array([0.5, -1.25, 1e300, 5e-324, 7.0])[PICK],
    "float32": np.array([0.5, -1.25, 1e30, 1e-40, 7.0], dtype=np.float32)[PICK],
    "two zeros": np.array([0.0, -0.0, 1.0, -1.0, 2.0])[PICK],
    "complex": np.array([1j, 1, 1 + 1j, 0, -1j])[PICK],
    "days": np.array(["2020-01-01", "1999-12-31", "2000-01-01", "2038-01-19", "1970-01-01"], "M8[D]")[PICK],
    "a column": np.stack([PICK, PICK * 0.5], axis=1)[:, 1],
    "all different": np.random.default_rng(1).standard_normal(400),
}


@pytest.mark.parametrize("values", COMPLETE.values(), ids=COMPLETE)
@pytest.mark.parametrize("hash_bits", [2, 16])
def test_classes_are_those_that_sorting_finds_even_where_hashes_collide(values, hash_bits, monkeypatch):
    monkeypatch.setattr(labels, "HASH_BITS", hash_bits)
    expected, inverse = np.unique(values, return_inverse=True)
    codes, classes = find_classes(values)
    np.testing.assert_array_equal(codes, inverse)
    np.testing.assert_array_equal(classes, expected)
    assert np.asarray(classes).dtype == values.dtype
    assert encode_classes(values)[1] == len(expected)


@pytest.mark.parametrize(
    ("values", "gone"),
    [
        (np.array([1.5, np.nan, 0.0, np.nan, 2.0])[PICK], [1, 3]),
        (np.array(["2020", "NaT", "1999", "2021", "NaT"], "M8[Y]")[PICK], [1, 4]),
        (np.array(["b", None, float("nan"), "a", pd.NA], dtype=object)[PICK], [1, 2, 4]),
        (np.array([2.5, None, np.float64("nan"), 3, pd.NaT], dtype=object)[PICK], [1, 2, 4]),
        (np.array(["b", "a", "", "nan", "None"], dtype=object)[PICK], []),
    ],
)
def test_missing_values_have_no_class(values, gone):
    absent = np.isin(PICK, gone)
    np.testing.assert_array_equal(missing(values), absent)
    codes, classes = find_classes(values)
    np.testing.assert_array_equal(codes == -1, absent)
    np.testing.assert_array_equal(np.asarray(classes)[codes[~absent]], values[~absent])
    assert len(classes) == len({*PICK[~absent].tolist()})


def test_objects_are_numbered_as_they_first_appear():
    codes, classes = find_classes(np.array([3, None, 2.5, 1, 1.0, True, 3], dtype=object))
    assert codes.tolist() == [0, -1, 1, 2, 2, 2, 0]
    assert classes == [3, 2.5, 1]


@pytest.mark.parametrize("number", [0, 1.5, True, np.bool_(False), np.float32(2)])
@pytest.mark.parametrize("text", ["0", b"0"])
def test_numbers_and_texts_are_not_classes_of_one_label(number, text):
    for values in ([number, text, None], [text, number]):
        with pytest.raises(ValueError, match=re.escape(f"numbers such as {number!r} and texts such as {text!r}")):
            find_classes(np.array(values, dtype=object))


def test_nothing_has_no_classes():
    for values in (np.zeros(0), np.full(3, np.nan), np.array([None, None], dtype=object)):
        codes, classes = find_classes(values)
        assert (codes == -1).all()
        assert len(classes) == 0


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16, np.uint8, bool])
def test_numbers_keep_their_values(kind):
    values = PICK.astype(kind)
    np.testing.assert_array_equal(numeric(values, "graph"), values.astype(np.float64))
    assert numeric(values, "graph").dtype == np.float64


def test_infinite_numbers_are_refused_in_every_type():
    for values in (np.array([1.0, np.inf]), np.array([1, -np.inf], np.float32), np.array([1.0, np.inf], dtype=object)):
        with pytest.raises(ValueError, match="infinite"):
            numeric(values, "graph")


def test_labels_with_names_stay_as_they_are_and_others_become_arrays():
    frame = pd.DataFrame({"a": [1, 2]})
    assert as_labels(frame) is frame
    assert as_labels(None) is None
    table = {"a": [1, 2]}
    assert as_labels(table) is table
    np.testing.assert_array_equal(as_labels([1, 2]), np.array([1, 2]))


def _categorical_labels():
    values = np.arange(200) % 50
    raw = pd.Categorical(np.where(values == 7, None, values))
    return {
        "Categorical": (raw, None),
        "Series": (pd.Series(raw), None),
        "column": (pd.DataFrame({"y": raw, "x": np.arange(0.5, 200)}), "y"),
        "dict of Categorical": ({"y": raw, "x": np.arange(0.5, 200)}, "y"),
        "dict of Series": ({"y": pd.Series(raw, index=range(9, 209))}, None),
    }


@pytest.mark.parametrize(("y", "name"), _categorical_labels().values(), ids=_categorical_labels())
def test_a_categorical_names_classes_however_many_numbers_it_holds(y, name):
    every = np.arange(200)
    kept = as_labels(y)
    assert holds_classes(kept, name, every)
    if len(label_names(y)) == 2:
        assert not holds_classes(kept, "x", every)
    codes, classes = find_classes(pick_label(kept, name))
    assert sorted(classes) == [value for value in range(50) if value != 7]
    np.testing.assert_array_equal(codes == -1, every % 50 == 7)
    assert label_names(kept) == label_names(y)


def test_only_the_rows_asked_for_decide_what_a_label_is():
    y = np.append(np.zeros(50), np.arange(0.5, 50))
    assert holds_classes(y, None, y == 0)
    assert not holds_classes(y, None, y >= 0)


@pytest.mark.parametrize(("y", "name"), [({"a": np.zeros((3, 2))}, "a"), ({"a": np.zeros((3, 2))}, None)])
def test_a_label_has_one_value_per_sample(y, name):
    with pytest.raises(ValueError, match=r"'a' must have one value per sample, got an array of shape \(3, 2\)"):
        pick_label(y, name)
