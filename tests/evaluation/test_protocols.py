"""Protocols: sizes of the paper, disjoint sets, the same sets again from the same seed."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from higsfa.evaluation.protocols import (
    binary_race,
    cross_database,
    leave_persons_out,
    random_splits,
    s1_s2_s3,
    summarise,
)

S3 = {"MB": 28872, "FB": 3187, "MW": 1, "FW": 28, "MA": 141, "MH": 1667, "MO": 44, "FA": 13, "FH": 102, "FO": 19}
EACH = {"MB": 3980, "MW": 3980, "FB": 1285, "FW": 1285}


@pytest.fixture(scope="module")
def morph():
    """Labels of a MORPH-II that has the paper's composition, in random order."""
    rng = np.random.default_rng(0)
    total = {kind: n + 2 * EACH.get(kind, 0) for kind, n in S3.items()}
    kinds = rng.permutation(np.repeat(list(total), list(total.values())))
    gender, race = np.array([kind[0] for kind in kinds]), np.array([kind[1] for kind in kinds])
    identity = rng.integers(0, 13_000, len(kinds))
    return {"gender": gender, "race": race, "identity": identity}


def composition(labels, rows):
    return Counter(g + r for g, r in zip(labels["gender"][rows], labels["race"][rows], strict=True))


def test_three_sets_have_the_papers_sizes_and_composition(morph):
    assert len(morph["race"]) == 55_134
    sets = s1_s2_s3(morph, random_state=7)
    assert (len(sets.s1), len(sets.s2), len(sets.s3)) == (10_530, 10_530, 34_074)
    assert composition(morph, sets.s1) == composition(morph, sets.s2) == EACH
    assert composition(morph, sets.s3) == S3


def test_three_sets_are_a_partition_and_the_runs_swap_s1_and_s2(morph):
    sets = s1_s2_s3(morph)
    assert_array_equal(np.sort(np.concatenate([sets.s1, sets.s2, sets.s3])), np.arange(55_134))
    first, second = sets.runs
    for run, train, other in ((first, sets.s1, sets.s2), (second, sets.s2, sets.s1)):
        assert_array_equal(run.train, train)
        assert set(run.test) == set(other) | set(sets.s3)
        assert len(run.test) == 44_604
        assert len(np.intersect1d(run.train, run.test)) == 0


def test_three_sets_depend_on_the_seed_alone(morph):
    a, b, c = (s1_s2_s3(morph, random_state=seed) for seed in (1, 1, 2))
    assert_array_equal(a.s1, b.s1)
    assert_array_equal(a.s2, b.s2)
    assert not np.array_equal(a.s1, c.s1)
    frame = s1_s2_s3(pd.DataFrame(morph), random_state=1)
    assert_array_equal(frame.s1, a.s1)


def test_three_sets_put_missing_labels_into_the_third():
    labels = {
        "gender": np.array(["M", "M", None, "M"], dtype=object),
        "race": np.array(["B", "B", "B", None], dtype=object),
    }
    sets = s1_s2_s3(labels, sizes={"MB": 1})
    assert_array_equal(sets.s3, [2, 3])


def test_three_sets_name_what_is_wrong():
    with pytest.raises(ValueError, match=r"need 1285 images of FB each, but labels hold 0.*found: \['FBlack'"):
        s1_s2_s3({"gender": ["F", "M"], "race": ["Black", "White"]})
    with pytest.raises(ValueError, match=r"must hold 'gender' and 'race', got \['race'\]"):
        s1_s2_s3({"race": ["B"]})
    with pytest.raises(ValueError, match=r"sizes\['MB'\]=-1"):
        s1_s2_s3({"gender": ["M"], "race": ["B"]}, sizes={"MB": -1})
    with pytest.raises(ValueError, match="draws no image"):
        s1_s2_s3({"gender": ["M"], "race": ["B"]}, sizes={})
    with pytest.raises(ValueError, match="2 values of 'gender' but 1 of 'race'"):
        s1_s2_s3({"gender": ["M", "M"], "race": ["B"]})


def test_no_person_is_in_both_training_and_test(morph):
    identity = morph["identity"]
    runs = leave_persons_out(identity, random_state=0)
    assert len(runs) == 5
    for train, test in runs:
        assert len(np.unique(identity[test])) == 2000
        assert not set(identity[train]) & set(identity[test])
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(identity)))
    assert len({tuple(run.test) for run in runs}) == 5


def test_left_out_persons_depend_on_the_seed_alone(morph):
    names = np.array([f"person {i}" for i in morph["identity"]])
    a = leave_persons_out(names, n_repeats=2, random_state=1)
    b = leave_persons_out(names, n_repeats=2, random_state=1)
    for one, two in zip(a, b, strict=True):
        assert_array_equal(one.test, two.test)


def test_leaving_out_everybody_or_nobody_is_an_error():
    with pytest.raises(ValueError, match="n_persons=2 leaves nobody to train on: identity holds 2 persons"):
        leave_persons_out([1, 2, 1], n_persons=2)
    with pytest.raises(ValueError, match="n_persons=0"):
        leave_persons_out([1, 2, 1], n_persons=0)
    with pytest.raises(ValueError, match="identity is missing for 1 samples"):
        leave_persons_out(["a", None, "b"], n_persons=1)


def test_random_splits_have_the_fraction_and_keep_groups_together():
    train, test = random_splits(100, 0.75)[0]
    assert (len(train), len(test)) == (75, 25)
    assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(100))
    person = np.repeat([f"p{i}" for i in range(20)], 5)
    for train, test in random_splits(person, 0.75, groups=person, n_repeats=3, random_state=1):
        assert len(np.unique(person[train])) == 15
        assert not set(person[train]) & set(person[test])
        assert len(train) + len(test) == 100
    again = random_splits(person, 0.75, groups=person, n_repeats=3, random_state=1)
    assert_array_equal(again[2].train, train)


def test_the_smallest_splits_are_possible():
    sets = s1_s2_s3({"gender": list("MMF"), "race": list("BBB")}, sizes={"MB": 1, "FB": 0})
    assert [len(part) for part in (sets.s1, sets.s2, sets.s3)] == [1, 1, 1]
    assert_array_equal(sets.s3, [2])
    ((train, test),) = leave_persons_out([7, 5, 7], n_persons=1, n_repeats=1)
    assert sorted([train.tolist(), test.tolist()]) == [[0, 2], [1]]
    ((train, test),) = random_splits(2, 0.5)
    assert {*train, *test} == {0, 1}
    ((train, test),) = random_splits(3, 0.5, groups=["a", "b", "a"])
    assert sorted([train.tolist(), test.tolist()]) == [[0, 2], [1]]
    assert_array_equal(cross_database([3, 4], low=4, high=4), [False, True])
    assert str(summarise([{"mae": 3.0}])["mae"]) == "3.000"
    assert str(summarise([{"mae": 3.0}, {"mae": 4.0}])["mae"]) == "3.500 ± 0.500"


def test_sample_numbers_ascend(morph):
    sets = s1_s2_s3(morph)
    splits = [*sets.runs, *leave_persons_out(morph["identity"], n_repeats=1), *random_splits(100)]
    for numbers in (sets.s1, sets.s2, sets.s3, *(part for split in splits for part in split)):
        assert np.all(np.diff(numbers) > 0)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((10, 1.5), {}, r"train_fraction=1.5"),
        ((10, 1.0), {}, r"train_fraction=1.0"),
        ((10, 0.0), {}, r"train_fraction=0.0"),
        ((10, "0.5"), {}, r"train_fraction='0.5'"),
        ((10,), {"n_repeats": True}, r"n_repeats=True"),
        ((10,), {"n_repeats": 1.0}, r"n_repeats=1.0"),
        ((2,), {"groups": ["a", "b", "c"]}, r"groups: needs 2 values"),
        ((1,), {}, r"n_samples=1"),
        ((3,), {"groups": [1, 1]}, r"groups: needs 3 values"),
        ((3,), {"groups": [1, 1, 1]}, r"of two groups or more"),
        ((3,), {"n_repeats": 0}, r"n_repeats=0"),
    ],
)
def test_splits_that_cannot_be_are_errors(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        random_splits(*arguments, **options)


def test_binary_race_trains_black_against_all_others_and_scores_black_and_white(morph):
    label, scored = binary_race(morph["race"])
    assert_array_equal(label == "B", morph["race"] == "B")
    assert set(label) == {"B", "R"}
    assert_array_equal(scored, np.isin(morph["race"], ["B", "W"]))
    label, scored = binary_race(pd.Series(["B", "W", pd.NA], dtype="string"))
    assert label.tolist() == ["B", "R", None]
    assert_array_equal(scored, [True, True, False])
    with pytest.raises(ValueError, match=r"race must hold 'B'.*'Black'"):
        binary_race(["Black", "White"])


def test_cross_database_counts_completed_years():
    assert_array_equal(cross_database([15, 16, 40, 77, 78]), [False, True, True, True, False])
    assert_array_equal(cross_database(np.array([77.99, np.nan]), high=77), [True, False])
    with pytest.raises(ValueError, match="low=5 must not be above high=4"):
        cross_database([1], low=5, high=4)


def test_summary_is_mean_and_standard_error_of_each_metric():
    summary = summarise([{"mae": 3.0, "cr": 0.9}, {"cr": 0.8, "mae": 4.0}])
    assert summary["mae"] == (3.5, 0.5)
    assert summary["cr"] == pytest.approx((0.85, 0.05))
    assert str(summarise([{"mae": 3.0}])["mae"]) == "3.000"
    with pytest.raises(ValueError, match=r"runs\[1\] has metrics \['rmse'\]"):
        summarise([{"mae": 1.0}, {"rmse": 1.0}])
    with pytest.raises(ValueError, match="empty"):
        summarise([])
