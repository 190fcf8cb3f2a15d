"""What a label is taken for, over labels as people have them; and the switch that overrules it."""

import warnings

import numpy as np
import pandas as pd
import pytest

from higsfa.core.graph.labels import find_classes, holds_classes, kind_of, read_kinds

RNG = np.random.default_rng(0)
# How often the 43 signs occur in the training set of a well-known benchmark of traffic signs, in tens.
SIGNS = [21, 222, 225, 141, 198, 186, 42, 144, 141, 147, 201, 132, 210, 216, 78, 63, 42, 111, 120, 21, 36, 33, 39, 51]
SIGNS += [27, 150, 60, 24, 54, 27, 45, 78, 24, 69, 42, 120, 39, 21, 207, 30, 36, 24, 24]
SIGN = np.repeat(np.arange(43), np.multiply(SIGNS, 10))
AGE = np.clip(RNG.normal(38, 12, 500).astype(int), 16, 77)
CHILD = np.minimum(RNG.geometric(0.06, 20_000) - 1, 100)  # from 0 on, without a gap for long, then dying out


def missing_some(values):
    return np.where(np.arange(len(values)) % 7 == 3, np.nan, values)


CLASSES = {
    "digits": np.arange(400) % 10,
    "20 values with gaps": np.arange(400) % 20 * 10**12,
    "few values of many samples": (np.arange(5000) // 1200) * 1.0,
    "ages in decades": np.arange(90) % 9,
    "decades in years": np.arange(90) % 9 * 10,
    "43 signs": SIGN,
    "43 signs, numbered from 1": SIGN + 1,
    "43 signs of a table with missing values": missing_some(SIGN),
    "43 signs as objects": SIGN.astype(object),
    "43 signs, 2,000 at random": RNG.choice(SIGN, 2000, replace=False),
    "43 signs, 5 of each": np.arange(215) % 43,
    "43 signs of one byte": SIGN.astype(np.uint8),
    "100 objects, balanced": np.arange(5000) % 100,
    "two values of two samples": np.array([0, 1]),
    "digits of a table with missing values": missing_some(np.arange(400) % 10),
    "names": np.array(["cat", "dog", "cow"])[np.arange(60) % 3],
    "as many names as samples": np.array([f"id{i}" for i in range(50)]),
    "digits as text": (np.arange(60) % 30).astype(str),
    "objects of names and None": np.array(["cat", None, "dog"] * 5, dtype=object),
    "booleans": np.arange(60) % 2 == 0,
    "booleans and None": np.array([True, None, False] * 5, dtype=object),
    "objects": np.array([(1, 2), None, (3, 4)] + [None] * 3, dtype=object)[:3],
    "whole numbers and None": np.array([1, None, 2.0], dtype=object),
}
NUMBERS = {
    "ages of 500 people": AGE,
    "ages of a table with missing values": missing_some(AGE),
    "ages of 20 people, some alike": AGE[:20],
    "ages from 0 on": CHILD,
    "ages of adults, each often": np.arange(40_000) % 40 + 21,
    "ids": np.arange(500),
    "ids of few samples": np.arange(12),
    "counts that die out": RNG.poisson(30, 2000),
    "years": RNG.integers(1900, 2020, 3000),
    "a code missing": SIGN[SIGN != 17],
    "one code once": np.append(np.arange(300) % 30, 30),
    "fractions": RNG.normal(size=100),
    "few fractions": np.arange(100) % 4 / 2,
    "one fraction among whole numbers": np.append(np.zeros(2000), 0.5),
    "floats too large for fractions": np.linspace(1e17, 2e17, 10)[np.arange(100) % 10],
    "infinite ones": np.append(np.arange(100) % 3, np.inf),
    "fractions as objects": np.array([1, None, 2.5], dtype=object),
    "dates": np.array(["2020-01-01", "2020-01-02"] * 9, dtype="M8[D]"),
    "nothing but missing values": np.full(9, np.nan),
}


@pytest.mark.parametrize("values", CLASSES.values(), ids=CLASSES)
def test_labels_that_are_classes(values):
    assert kind_of(values).is_class


@pytest.mark.parametrize("values", NUMBERS.values(), ids=NUMBERS)
def test_labels_that_are_numbers(values):
    assert not kind_of(values).is_class


@pytest.mark.parametrize("values", CLASSES.values(), ids=CLASSES)
def test_a_pandas_categorical_is_classes_whatever_it_holds(values):
    every = np.arange(len(values))
    for y in (pd.Series(values).astype("category"), pd.DataFrame({"y": pd.Series(values).astype("category")})):
        assert holds_classes(y, None, every)
    assert holds_classes(pd.Categorical(AGE), None, np.arange(500))


@pytest.mark.parametrize(
    ("y", "text"),
    [
        (
            AGE,
            r"^y: 5\d different whole numbers from 16 to 7\d were taken as a number; say label_kinds='categorical' if",
        ),
        ({"age": AGE}, r"^label 'age': .*; say label_kinds={'age': 'categorical'} if they name classes"),
        (np.column_stack([AGE, AGE]), r"^label 0: .* say label_kinds={0: 'categorical'}"),
        (np.arange(500), "from 0 to 499 were taken as a number"),
        (
            SIGN,
            "43 different whole numbers from 0 to 42 were taken as classes; say label_kinds='numeric' if they measure",
        ),
    ],
)
def test_a_guess_about_whole_numbers_is_told_with_the_switch(y, text):
    values = y["age"] if isinstance(y, dict) else y
    with pytest.warns(UserWarning, match=text):
        holds_classes(y, "age" if isinstance(y, dict) else 0, np.arange(len(values)))


@pytest.mark.parametrize("kind", ["categorical", "numeric"])
@pytest.mark.parametrize(
    "y", [AGE, SIGN, pd.Categorical(AGE), np.array(["a", "b"])], ids=["age", "sign", "cat", "names"]
)
def test_the_switch_decides_in_silence(y, kind):
    kinds = read_kinds(kind, y)
    assert holds_classes(y, None, np.arange(len(y)), kinds) == (kind == "categorical")


def test_the_precision_of_digits_does_not_matter():
    for dtype in (np.float16, np.float32, np.int8):
        assert kind_of((np.arange(400) % 10).astype(dtype)).is_class


@pytest.mark.parametrize("name", ["digits", "names", "ages in decades"])
def test_what_is_clear_is_not_worth_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert holds_classes(CLASSES[name], None, np.arange(len(CLASSES[name])))
        assert not holds_classes(NUMBERS["fractions"], None, np.arange(100))


@pytest.mark.parametrize(
    ("given", "names", "error", "text"),
    [
        (
            "categorical",
            ["a", "b"],
            ValueError,
            r"is for one label, and y has \['a', 'b'\]: name them, as in label_kinds={'a'",
        ),
        ({"c": "numeric"}, ["a", "b"], ValueError, r"'c', which is not among the labels \['a', 'b'\]"),
        ({"a": "number"}, ["a"], ValueError, "'number' for label 'a' is unknown; say 'categorical' or 'numeric'"),
        ("classes", [0], ValueError, "'classes' for label 0 is unknown"),
        (3, [0], TypeError, "a dict from labels to kinds"),
    ],
)
def test_wrong_names_and_kinds_are_told(given, names, error, text):
    with pytest.raises(error, match=text):
        read_kinds(given, dict.fromkeys(names, AGE))


ONE_HOT = np.eye(3, dtype=int)[np.arange(30) % 3]


@pytest.mark.parametrize("y", [ONE_HOT, ONE_HOT * 1.0, ONE_HOT == 1, pd.get_dummies(pd.Series(np.arange(30) % 3))])
def test_one_hot_columns_are_told_to_be_several_labels(y):
    with pytest.warns(
        UserWarning, match=r"its 3 columns look like one label, one-hot, but were taken as 3 labels; use np.argmax"
    ):
        read_kinds(None, y)


@pytest.mark.parametrize(
    "y",
    [
        ONE_HOT[:, :2],
        ONE_HOT * 2,
        ONE_HOT[:, [0, 0]],
        np.column_stack([np.ones(30), np.zeros(30)]),
        ONE_HOT.astype(str),
        {"a": ONE_HOT[:, 0], "b": ONE_HOT[:9, 1]},
        np.arange(30) % 2,
        ONE_HOT[:, :1],
    ],
)
def test_other_columns_are_no_one_hot_code(y):
    assert read_kinds(None, y) == {}
    assert read_kinds({0: "categorical"}, ONE_HOT) == {0: "categorical"}  # somebody knows that there are several


@pytest.mark.parametrize(
    ("names", "pair"),
    [
        (["cat", "dog", "cat "], "'cat' and 'cat '"),
        (["cat", "Cat", "dog"], "'cat' and 'Cat'"),
        (np.array(["dog", "cat", " CAT"]), "' CAT' and 'cat'"),
        (np.array([b"cat", b"cat\t"]), r"b'cat' and b'cat\\t'"),
    ],
)
def test_names_that_differ_only_in_case_or_blanks_are_told(names, pair):
    values = np.array(names, dtype=object) if isinstance(names, list) else names
    with pytest.warns(
        UserWarning, match=f"^y: {pair} differ only in case or in blanks, and were taken as different classes"
    ):
        assert len(find_classes(values)[1]) == len(names)


def test_different_names_and_numbers_are_not_alike():
    for names in (["cat", "dog"], ["ca t", "cat"], [1, 2, True]):
        find_classes(np.array(names, dtype=object))
