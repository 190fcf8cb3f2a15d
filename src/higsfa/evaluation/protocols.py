"""Evaluation protocols: how the paper divides samples into training and test sets and averages over runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit, ShuffleSplit
from sklearn.utils import check_random_state

from higsfa.core.graph.labels import encode_classes, label_names, missing, numeric, pick_label
from higsfa.evaluation.metrics import mean_and_standard_error

__all__ = [
    *("PAPER_SIZES", "BinaryRace", "MeanOverRuns", "Split", "ThreeSets", "binary_race", "cross_database"),
    *("leave_persons_out", "random_splits", "s1_s2_s3", "summarise"),
]

Ints = NDArray[np.intp]

PAPER_SIZES = {"MB": 3980, "MW": 3980, "FB": 1285, "FW": 1285}
"""Images of each gender and race in S1 and in S2: 10,530 together."""


class Split(NamedTuple):
    """One run: the indices of the samples to train on and to test on, both ascending.

    Examples
    --------
    >>> import numpy as np
    >>> from higsfa.datasets import Split
    >>> split = Split(train=np.array([0, 1, 3]), test=np.array([2]))
    >>> np.array(list("abcd"))[split.train].tolist()
    ['a', 'b', 'd']
    """

    train: Ints
    test: Ints


class ThreeSets(NamedTuple):
    """The sets S1, S2 and S3 of the paper's first protocol, as ascending sample indices.

    The two `runs` train on S1 and test on S2 and S3; train on S2 and test on S1 and S3.
    """

    s1: Ints
    s2: Ints
    s3: Ints

    @property
    def runs(self) -> tuple[Split, Split]:
        return Split(self.s1, np.union1d(self.s2, self.s3)), Split(self.s2, np.union1d(self.s1, self.s3))


def s1_s2_s3(labels: Any, random_state: Any = 0, *, sizes: Mapping[str, int] | None = None) -> ThreeSets:
    """The paper's protocol on MORPH-II, after Guo and Mu (2014).

    S1 and S2 are drawn at random with the same composition: as many images of black as of white people and about three
    times more of men than of women. S3 holds all others. A person may be in both training and test: 44 % of the test
    images of MORPH-II show persons seen in training. `leave_persons_out` is stricter.

    Parameters
    ----------
    labels : DataFrame or dict of arrays
        With labels "gender" (M, F) and "race" (B, W, ...).
    random_state : int, RandomState or None, default=0
    sizes : dict, optional
        Number of images in each of S1 and S2 by gender and race, such as {"MB": 40, "FW": 10}; by default 3,980 MB
        and MW, 1,285 FB and FW, as in the paper.

    Returns
    -------
    ThreeSets

    Examples
    --------
    >>> labels = {"gender": list("MMMMFFFFM"), "race": list("BBBBWWWWA")}
    >>> sets = s1_s2_s3(labels, sizes={"MB": 2, "FW": 1})
    >>> [len(run.train) for run in sets.runs], [len(run.test) for run in sets.runs]
    ([3, 3], [6, 6])
    """
    sizes = PAPER_SIZES if sizes is None else sizes
    for name in ("gender", "race"):
        if name not in label_names(labels):
            raise ValueError(f"labels must hold 'gender' and 'race', got {label_names(labels)}")
    gender, race = pick_label(labels, "gender"), pick_label(labels, "race")
    if len(gender) != len(race):
        raise ValueError(f"labels: {len(gender)} values of 'gender' but {len(race)} of 'race'")
    composition = np.array([f"{g}{r}" for g, r in zip(gender, race, strict=True)], dtype=object)
    composition[missing(gender) | missing(race)] = ""
    rng = check_random_state(random_state)
    none = np.zeros(0, dtype=np.intp)
    parts = [none], [none]
    for name in sorted(sizes):
        n = _count(f"sizes[{name!r}]", sizes[name], 0)
        members = np.flatnonzero(composition == name)
        if len(members) < 2 * n:
            raise ValueError(
                f"sizes: S1 and S2 need {n} images of {name} each, but labels hold {len(members)} of them; "
                "give smaller sizes, such as sizes={'MB': 10, 'FB': 10}, or check the spelling of gender and race "
                f"(found: {sorted(set(composition))[:12]})"
            )
        drawn = rng.permutation(members)[: 2 * n]
        parts[0].append(drawn[:n])
        parts[1].append(drawn[n:])
    s1, s2 = (np.sort(np.concatenate(part)) for part in parts)
    s3 = np.setdiff1d(np.arange(len(gender)), np.concatenate([s1, s2]))
    if len(s1) == 0:
        raise ValueError(f"sizes={dict(sizes)!r} draws no image; give at least one size above 0")
    return ThreeSets(s1, s2, s3)


def leave_persons_out(identity: Any, n_persons: int = 2000, n_repeats: int = 5, random_state: Any = 0) -> list[Split]:
    """The paper's second protocol: test on all images of some persons, drawn at random.

    No person is in both training and test set; on average both have the same distribution.

    Parameters
    ----------
    identity : array-like of shape (n_samples,)
        The person in each image.
    n_persons : int, default=2000
        Persons in the test set of each run.
    n_repeats : int, default=5
        Number of independent runs.
    random_state : int, RandomState or None, default=0

    Returns
    -------
    list of Split

    Examples
    --------
    >>> (run,) = leave_persons_out(["ann", "bob", "ann", "eve"], n_persons=1, n_repeats=1, random_state=3)
    >>> run
    Split(train=array([0, 2, 3]), test=array([1]))
    """
    _count("n_persons", n_persons, 1)
    _count("n_repeats", n_repeats, 1)
    codes, n_known = _groups(identity, "identity")
    if n_persons >= n_known:
        raise ValueError(
            f"n_persons={n_persons} leaves nobody to train on: identity holds {n_known} persons; leave fewer out"
        )
    rng = check_random_state(random_state)
    tested = (np.isin(codes, rng.permutation(n_known)[:n_persons]) for _ in range(n_repeats))
    return [Split(np.flatnonzero(~mask), np.flatnonzero(mask)) for mask in tested]


def random_splits(
    n_samples: Any, train_fraction: float = 0.8, *, groups: Any = None, n_repeats: int = 1, random_state: Any = 0
) -> list[Split]:
    """Random splits of samples, or of whole groups, into training and test sets.

    Parameters
    ----------
    n_samples : int, or anything with a length
    train_fraction : float, default=0.8
        Fraction of the samples to train on; with `groups`, fraction of the groups.
    groups : array-like of shape (n_samples,), optional
        Samples of the same group, such as a person, stay together.
    n_repeats : int, default=1
    random_state : int, RandomState or None, default=0

    Returns
    -------
    list of Split

    Examples
    --------
    >>> [(len(train), len(test)) for train, test in random_splits(10, 0.7, n_repeats=2)]
    [(7, 3), (7, 3)]
    """
    n = n_samples if isinstance(n_samples, Integral) else len(n_samples)
    _count("n_samples", n, 2)
    _count("n_repeats", n_repeats, 1)
    if not isinstance(train_fraction, Real) or not 0 < train_fraction < 1:
        raise ValueError(f"train_fraction={train_fraction!r} must be a number between 0 and 1, such as 0.8")
    codes = None
    if groups is not None:
        codes, n_groups = _groups(groups, "groups")
        if len(codes) != n or n_groups < 2:
            raise ValueError(
                f"groups: needs {n} values, one per sample, of two groups or more; got {len(codes)} of {n_groups}"
            )
    splitter = (ShuffleSplit if groups is None else GroupShuffleSplit)(
        n_splits=int(n_repeats), train_size=float(train_fraction), random_state=random_state
    )
    return [Split(np.sort(a), np.sort(b)) for a, b in splitter.split(np.zeros(int(n)), groups=codes)]


class BinaryRace(NamedTuple):
    """Race as two classes."""

    label: NDArray[Any]
    """For training: "B", or "R" for all others; None where race is missing."""
    scored: NDArray[np.bool_]
    """The samples that count in the classification rate: those that are B or W."""


def binary_race(race: Any) -> BinaryRace:
    """Race as in the paper's second protocol: B against all others (R = W + A + H + O), scored on B and W only.

    Parameters
    ----------
    race : array-like of shape (n_samples,)
        Letters as in MORPH-II.

    Returns
    -------
    BinaryRace

    Examples
    --------
    >>> binary_race(["B", "W", "H", None])
    BinaryRace(label=array(['B', 'R', 'R', None], dtype=object), scored=array([ True,  True, False, False]))
    """
    values = pick_label(race, None)
    known = ~missing(values)
    label = np.full(len(values), None, dtype=object)
    label[known] = ["B" if value == "B" else "R" for value in values[known]]
    if "B" not in label or "R" not in label:
        raise ValueError(
            f"race must hold 'B' and other letters, as in MORPH-II; got values such as {values[known].tolist()[:5]}"
        )
    return BinaryRace(label, known & np.isin(values.astype(str), ["B", "W"]))


def cross_database(age: Any, low: int = 16, high: int = 77) -> NDArray[np.bool_]:
    """Mask of the samples of another data set to test on: those of the ages seen in training.

    Parameters
    ----------
    age : array-like of shape (n_samples,)
    low, high : int, default=16, 77
        Ages in completed years, both included; by default those of MORPH-II.

    Returns
    -------
    array of bool; False where the age is missing

    Examples
    --------
    >>> cross_database([15.9, 16.0, 77.9, 78.0, float("nan")])
    array([False,  True,  True, False, False])
    """
    if low > high:
        raise ValueError(f"low={low} must not be above high={high}")
    years = np.floor(numeric(pick_label(age, None), "cross_database"))
    return np.asarray((years >= low) & (years <= high))


class MeanOverRuns(NamedTuple):
    """Mean over runs and its standard error, printed as in the paper's tables."""

    mean: float
    standard_error: float

    def __str__(self) -> str:
        error = "" if np.isnan(self.standard_error) else f" ± {self.standard_error:.3f}"
        return f"{self.mean:.3f}{error}"


def summarise(runs: Sequence[Mapping[str, float]]) -> dict[str, MeanOverRuns]:
    """Mean and standard error of each metric over runs.

    Parameters
    ----------
    runs : list of dict
        The metrics of each run, such as {"age_mae": 3.5, "gender_cr": 0.98}, with the same names in every run.

    Returns
    -------
    dict of MeanOverRuns

    Examples
    --------
    >>> print(summarise([{"mae": 3.489}, {"mae": 3.505}])["mae"])
    3.497 ± 0.008
    """
    if len(runs) == 0:
        raise ValueError("runs is empty: give the metrics of at least one run")
    names = list(runs[0])
    for i, run in enumerate(runs):
        if set(run) != set(names):
            raise ValueError(f"runs[{i}] has metrics {sorted(run)}, but runs[0] has {sorted(names)}; give all the same")
    return {name: MeanOverRuns(*mean_and_standard_error([run[name] for run in runs])) for name in names}


def _groups(values: Any, what: str) -> tuple[Ints, int]:
    values = pick_label(values, None)
    unknown = int(missing(values).sum())
    if unknown:
        raise ValueError(f"{what} is missing for {unknown} samples; leave these out, or give them values of their own")
    return encode_classes(values)


def _count(name: str, value: Any, least: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}")
    return int(value)
