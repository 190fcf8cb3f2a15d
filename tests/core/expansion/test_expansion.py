"""Expansions against naive loops, the paper's tables, and finite differences."""

import itertools
import pickle
import re
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from higsfa.core.expansion.expansion import Expansion, FunctionExpansion, as_expansion, parse_expansion

# --- the paper's networks: letters and positions as published, counted from 1, inclusive ----------

HIGSFA_G3 = [
    # children, width, terms, expanded
    (1, 20, "I1-18 E1-15 M1-17 Q1-10", 104),
    (3, 18, "I E M Q4-7 Q1-3", 284),
    (3, 27, "I E M1-16 Q5-10 Q1-3", 423),
    (3, 37, "I E M1-19 Q5-10 Q1-3", 492),
    (3, 66, "I1-60 E1-49 M1-19 Q5-10", 552),
    (3, 79, "I1-72 E1-40 M1-11 Q6-11 Q1-3", 582),
    (3, 88, "I1-80 E1-25 M1-15 Q7-10", 435),
    (3, 88, "I1-80 E7-26", 300),
    (3, 93, "I1-85 E7-26 Q1-3", 360),
    (1, 95, "I1-75 E1-34 Q8-22 Q1-3", 235),
]
HGSFA_G3 = [
    (1, 20, "I1-17 E1-20 M1-17 Q1-10", 108),
    (3, 14, "I1-8 E1-12 M1-10 Q1-3", 132),
    (3, 20, "I1-18 E1-18 M1-16", 153),
    (3, 27, "I1-25 E1-23 M1-19 Q1-3", 243),
    (3, 49, "I E1-43 M1-19", 330),
    (3, 60, "I1-58 E1-37 M1-13 Q1-3", 366),
    (3, 61, "I E1-21 M1-17", 294),
    (3, 65, "I1-49", 147),
    (3, 65, "I1-59 Q1-3", 222),
    (1, 66, "I1-66 E1-34 Q1-3", 106),
]
HIGSFA_G1 = [
    (1, 20, "I1-18 E1-15 M1-17 Q1-10", 104),
    (3, 18, "I E M Q2-5", 239),
    (3, 27, "I E M1-16 Q3-8", 378),
    (3, 37, "I E M1-19 Q3-8", 447),
    (3, 66, "I1-60 E1-49 M1-19 Q3-8", 552),
    (3, 79, "I1-72 E1-40 M1-11 Q4-9", 537),
    (3, 88, "I1-80 E1-25 M1-15 Q5-8", 435),
    (3, 88, "I1-80 E7-26", 300),
    (3, 93, "I1-85 E7-26", 315),
    (1, 95, "I1-75 E1-34 Q8-22", 229),
]
LETTERS = {"I": "identity", "E": "power0.8", "M": "max2", "Q": "quadratic"}


def published_to_text(published):
    terms = []
    for item in published.split():
        first, _, last = item[1:].partition("-")
        terms.append(LETTERS[item[0]] + (f"[{int(first) - 1}:{last}]" if last else ""))
    return " | ".join(terms)


@pytest.mark.parametrize("table", [HIGSFA_G3, HGSFA_G3, HIGSFA_G1], ids=["higsfa_g3", "hgsfa_g3", "higsfa_g1"])
@pytest.mark.parametrize("layer", range(10))
def test_sizes_are_those_of_the_papers_tables(table, layer):
    children, width, published, expanded = table[layer]
    expansion = parse_expansion(published_to_text(published))
    assert expansion.size(width, children) == expanded
    X = np.random.default_rng(layer).standard_normal((children * width, 3))
    assert expansion(X, children).shape == (expanded, 3)


def test_max2_without_a_slice_runs_across_the_children():
    assert parse_expansion("max2").size(18, 3) == 53
    assert parse_expansion("max2[0:]").size(18, 3) == 51


# --- an independent implementation, sample by sample ----------------------------------------------


def naive_term(name, number, bounds, x):
    """Rows of one term for one sample; x is a list of children, each a list of numbers."""
    a, b = bounds if bounds else (0, len(x[0]))
    chosen = [child[a:b] for child in x]
    joint = [value for child in chosen for value in child]
    if name == "identity":
        return joint
    if name == "power":
        return [abs(v) ** number for v in joint]
    if name == "signed_power":
        return [np.sign(v) * abs(v) ** number for v in joint]
    if name == "max2":
        groups = chosen if bounds else [joint]
        return [max(g[i], g[i + 1]) for g in groups for i in range(len(g) - 1)]
    if name == "polynomial":
        return [
            np.prod(factors)
            for degree in range(1, number + 1)
            for factors in itertools.combinations_with_replacement(joint, degree)
        ]
    scale = 1 + sum(v * v for v in joint) if name == "normalized_quadratic" else 1
    return [joint[i] * joint[j] / scale for i in range(len(joint)) for j in range(i, len(joint))]


def naive(terms, X, children):
    width = len(X) // children
    columns = []
    for sample in X.T.tolist():
        x = [sample[c * width : (c + 1) * width] for c in range(children)]
        columns.append([row for term in terms for row in naive_term(*term, x)])
    return np.array(columns).T


def text_of(terms):
    def one(name, number, bounds):
        number = {"power": f"{number}", "signed_power": f"{number}", "polynomial": f"{number}"}.get(name, "")
        return f"{name}{number}" + (f"[{bounds[0]}:{bounds[1]}]" if bounds else "")

    return " | ".join(itertools.starmap(one, terms))


NAMES = ["identity", "power", "signed_power", "quadratic", "normalized_quadratic", "max2", "polynomial"]
EXPONENTS = st.one_of(
    st.sampled_from([0.25, 0.5, 0.8, 1, 1.5, 1.8, 2, 2.5, 3, 8, 11, 12.3]),
    st.floats(0.05, 12, allow_nan=False),
)


@st.composite
def cases(draw):
    children, width = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    terms = []
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(NAMES))
        bounds = None
        if draw(st.booleans()):
            a = draw(st.integers(0, width - 1))
            bounds = (a, draw(st.integers(a + 1, width)))
        length = bounds[1] - bounds[0] if bounds else width * children
        if name == "max2" and length < 2:
            name = "identity"
        number = draw(EXPONENTS) if "power" in name else draw(st.integers(1, 3)) if name == "polynomial" else None
        terms.append((name, number, bounds))
    return children, width, terms, draw(st.integers(0, 2**32 - 1))


def block(seed, rows, n=4, dtype=np.float64):
    """Normal numbers with some zeros and ties among them."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, n))
    X[rng.random(X.shape) < 0.1] = 0
    X[rng.random(X.shape) < 0.1] = 1
    return X.astype(dtype)


@settings(max_examples=400, deadline=None)
@given(cases())
def test_equals_the_naive_loops(case):
    children, width, terms, seed = case
    expansion = parse_expansion(text_of(terms))
    X = block(seed, children * width)
    before = X.copy()
    expected = naive(terms, X, children)
    assert expansion.size(width, children) == len(expected)
    np.testing.assert_allclose(expansion(X, children), expected, rtol=1e-12, atol=0)
    np.testing.assert_array_equal(X, before)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_float32_stays_float32_and_close(case):
    children, width, terms, seed = case
    expansion = parse_expansion(text_of(terms))
    X = block(seed, children * width, dtype=np.float32)
    Z = expansion(X, children)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z, naive(terms, X, children), rtol=1e-5, atol=1e-30)
    assert expansion.backward(X, Z, children).dtype == np.float32


@settings(max_examples=200, deadline=None)
@given(cases())
def test_identity_rows_hold_the_inputs(case):
    children, width, terms, seed = case
    expansion = parse_expansion(text_of(terms))
    X = np.random.default_rng(seed).standard_normal((children * width, 3))
    Z = expansion(X, children)
    rows = expansion.identity_rows(len(X), children)
    assert rows.shape == (len(X),)
    assert np.issubdtype(rows.dtype, np.integer)
    plain = [t for t in terms if t[0] in ("identity", "polynomial")]
    for i, row in enumerate(rows):
        position = i % width
        kept = any(bounds is None or bounds[0] <= position < bounds[1] for _, _, bounds in plain)
        assert (row >= 0) == kept
        if kept:
            np.testing.assert_array_equal(Z[row], X[i])


@settings(max_examples=200, deadline=None)
@given(cases())
def test_scale_free_terms_only_scale_their_rows(case):
    children, width, terms, seed = case
    expansion = parse_expansion(text_of(terms))
    if all(name != "normalized_quadratic" for name, _, _ in terms):
        X = np.random.default_rng(seed).standard_normal((children * width, 4))
        ratio = expansion(3 * X, children) / expansion(X, children)
        np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], ratio.shape), rtol=1e-9)


# --- gradients ------------------------------------------------------------------------------------


def numerical_gradient(expansion, X, G, children, step=1e-6):
    gradient = np.empty_like(X)
    for i in range(len(X)):
        up, down = X.copy(), X.copy()
        up[i] += step
        down[i] -= step
        gradient[i] = np.sum(G * (expansion(up, children) - expansion(down, children)), axis=0) / (2 * step)
    return gradient


@pytest.mark.parametrize("children", [1, 3])
@pytest.mark.parametrize("selection", ["", "[1:4]", "[0:]"])
@pytest.mark.parametrize(
    "name",
    [
        *("identity", "power0.8", "power1", "power2.5", "signed_power0.8", "signed_power3", "max2"),
        *("quadratic", "normalized_quadratic", "polynomial1", "polynomial2", "polynomial3", "polynomial4"),
    ],
)
def test_backward_equals_finite_differences(name, selection, children):
    expansion = parse_expansion(f"{name}{selection} | identity | power0.5")
    rng = np.random.default_rng(5)
    X = rng.choice([-1, 1], (4 * children, 6)) * rng.uniform(0.3, 2, (4 * children, 6))
    G = rng.standard_normal((expansion.size(4, children), 6))
    before = X.copy(), G.copy()
    expected = numerical_gradient(expansion, X, G, children)
    np.testing.assert_allclose(expansion.backward(X, G, children), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(G, before[1])


@settings(max_examples=200, deadline=None)
@given(cases())
def test_backward_equals_finite_differences_for_any_terms(case):
    children, width, terms, seed = case
    expansion = parse_expansion(text_of(terms))
    rng = np.random.default_rng(seed)
    X = rng.choice([-1, 1], (width * children, 3)) * rng.uniform(0.3, 1.5, (width * children, 3))
    G = rng.standard_normal((expansion.size(width, children), 3))
    expected = numerical_gradient(expansion, X, G, children)
    np.testing.assert_allclose(expansion.backward(X, G, children), expected, rtol=1e-5, atol=1e-5)


def test_backward_at_kinks():
    zero, one = np.zeros((2, 1)), np.ones((2, 1))
    for text in ("power0.8", "power0.5", "power1", "signed_power0.3"):
        np.testing.assert_array_equal(parse_expansion(text).backward(zero, one), zero)
    np.testing.assert_array_equal(parse_expansion("max2").backward(one, np.array([[5.0]])), [[5.0], [0.0]])


# --- numbers at the edges -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", ["0.05", "0.5", "0.8", "1", "1.7", "2", "3.5", "20.5"])
def test_powers_of_special_values_are_exact_and_silent(p, dtype):
    X = np.array([[0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = parse_expansion(f"power{p} | signed_power{p}")(X)
        everything = parse_expansion("max2 | quadratic | polynomial3 | normalized_quadratic | power2")
        Y = np.vstack([X, X[:, ::-1] * dtype(1e30)])
        everything.backward(Y, everything(Y))
    np.testing.assert_array_equal(Z[0], [0, 0, 1, 1, np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(Z[1], [0, 0, 1, -1, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-13)])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.8, 0.95, 1.8, 3.2])
def test_powers_are_accurate_over_nineteen_decades(p, dtype, tolerance):
    x = np.ldexp(np.random.default_rng(0).uniform(1, 2, 60_000), np.arange(60_000) % 60 - 30).astype(dtype)
    exact = x.astype(np.longdouble) ** np.longdouble(p)
    finite = exact < np.finfo(dtype).max
    Z = parse_expansion(f"power{p!r}")(x[None])[0]
    assert np.max(np.abs(Z[finite] / exact[finite] - 1)) < tolerance


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_no_bit_depends_on_how_the_samples_are_cut(cut, dtype):
    X = block(1, 6, n=3000, dtype=dtype)
    expansion = parse_expansion(
        "power0.8 | signed_power1.3[1:] | max2 | quadratic[:2] | polynomial3[1:] | normalized_quadratic[:2]"
    )
    parts = [expansion(np.ascontiguousarray(X[:, i : i + cut]), 2) for i in range(0, X.shape[1], cut)]
    np.testing.assert_array_equal(expansion(X, 2), np.hstack(parts))


def test_powers_of_blocks_larger_than_a_cache_tile():
    X = block(1, 6, n=150_000, dtype=np.float32)
    whole = parse_expansion("power0.8[1:]")(X, 2)
    np.testing.assert_allclose(whole, np.abs(X[[1, 2, 4, 5]]) ** 0.8, rtol=2e-6)


@pytest.mark.parametrize("text", ["identity", "power0.8[:30]", "quadratic[:4]", "normalized_quadratic[1:5]", "max2"])
def test_no_temporary_as_large_as_the_block(text):
    expansion, n = parse_expansion(text), 20_000
    X = np.ones((3 * 40, n))
    out = np.empty((expansion.size(40, 3), n))
    tracemalloc.start()
    try:
        expansion.fill(X, out, 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * X[0].nbytes + 100_000


def test_backward_needs_no_more_than_a_few_input_blocks():
    expansion = parse_expansion("polynomial3 | quadratic | normalized_quadratic | power0.8 | max2")
    X = np.random.default_rng(0).standard_normal((12, 5000))
    G = expansion(X, 3)
    tracemalloc.start()
    try:
        expansion.backward(X, G, 3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * X.nbytes < G.nbytes


def test_strided_and_empty_blocks_work():
    expansion = parse_expansion("identity | power0.8[1:] | max2 | quadratic[:2] | polynomial2")
    X = block(2, 6, n=10)
    padded = np.zeros((12, 20))
    padded[::2, ::2] = X
    np.testing.assert_array_equal(expansion(padded[::2, ::2], 2), expansion(X, 2))
    np.testing.assert_array_equal(expansion(np.asfortranarray(X), 2), expansion(X, 2))
    assert expansion(X[:, :0], 2).shape == (expansion.size(3, 2), 0)
    assert expansion.backward(X[:, :0], expansion(X[:, :0], 2), 2).shape == (6, 0)


def test_fill_writes_to_the_callers_array():
    expansion = parse_expansion("identity | quadratic")
    X = block(3, 4)
    big = np.full((30, 4), np.nan)
    assert expansion.fill(X, big[5 : 5 + expansion.size(4)], 1) is None
    np.testing.assert_array_equal(big[5:19], expansion(X))
    assert np.isnan(big[:5]).all()
    assert np.isnan(big[19:]).all()


# --- text -----------------------------------------------------------------------------------------


@st.composite
def texts(draw):
    space = st.text(" \t\n", max_size=2)
    terms = []
    for _ in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(NAMES))
        if "power" in name:
            name += draw(
                st.one_of(
                    st.floats(1e-6, 1e9).map(repr),
                    st.integers(1, 99).map(str),
                    st.sampled_from([".5", "2.", "0.80", "1e-3", "1E+2"]),
                )
            )
        if name == "polynomial":
            name += str(draw(st.integers(1, 8)))
        a, length = draw(st.integers(0, 200)), draw(st.integers(1, 200))
        parts = draw(
            st.sampled_from(
                [
                    [],
                    ["[", f"{a}", "]"],
                    ["[", f"{a}", ":", f"{a + length}", "]"],
                    ["[", ":", f"{length}", "]"],
                    ["[", f"{a}", ":", "]"],
                    ["[", ":", "]"],
                ]
            )
        )
        terms.append("".join(draw(space) + part for part in [name, *parts, ""]))
    return "|".join(terms)


@settings(max_examples=400, deadline=None)
@given(texts())
def test_text_survives_a_round_trip(text):
    expansion = parse_expansion(text)
    canonical = str(expansion)
    again = parse_expansion(canonical)
    assert again == expansion
    assert hash(again) == hash(expansion)
    assert str(again) == canonical
    assert pickle.loads(pickle.dumps(expansion)) == expansion
    assert len(expansion.terms) == text.count("|") + 1


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("identity[0:18]|power0.80", "identity[:18] | power0.8"),
        (" quadratic [ 3 : 7 ] ", "quadratic[3:7]"),
        ("max2[2:3]", "max2[2]"),
        ("max2[:]", "max2[0:]"),
        ("power2.0 | polynomial03", "power2 | polynomial3"),
    ],
)
def test_canonical_text(text, canonical):
    assert str(parse_expansion(text)) == canonical


@pytest.mark.parametrize(
    ("text", "marked", "says"),
    [
        ("identity | quadratc[:3]", "quadratc", "did you mean 'quadratic'"),
        ("powr0.8", "powr0.8", "did you mean 'power0.8'"),
        ("identity | max", "max", "did you mean 'max2'"),
        ("Identity", "Identity", "did you mean 'identity'"),
        ("poly3", "poly3", "did you mean 'polynomial3'"),
        ("power", "power", "positive number"),
        ("power0 | identity", "power0", "positive number"),
        ("power-1", "power-1", "positive number"),
        ("identity | power1e999", "power1e999", "positive number"),
        ("polynomial0", "polynomial0", "from 1 to 8"),
        ("polynomial9", "polynomial9", "from 1 to 8"),
        ("polynomial2.5", "polynomial2.5", "positive integer"),
        ("identity[1:5:2]", "[1:5:2]", "without a step"),
        ("identity[-3:]", "[-3:]", r"\[a:b\]"),
        ("identity[1", "[1", r"\[a:b\]"),
        ("identity[]", "[]", r"\[a:b\]"),
        ("quadratic | identity[5:5]", "[5:5]", "selects nothing"),
        ("quadratic[7:3]", "[7:3]", "selects nothing"),
        ("identity | <function tanh>", "<function tanh>", "functions have no text form"),
    ],
)
def test_errors_show_the_text_and_point_at_the_wrong_part(text, marked, says):
    with pytest.raises(ValueError, match=says) as error:
        parse_expansion(text)
    first, shown, marks, known = str(error.value).splitlines()
    assert repr(text) in first
    assert shown[marks.index("^") : marks.rindex("^") + 1] == marked
    for name in NAMES:
        assert name in known


@pytest.mark.parametrize("text", ["", "  ", "|", "identity |", "| identity", "identity || max2"])
def test_missing_terms_are_errors(text):
    with pytest.raises(ValueError, match="a term is missing"):
        parse_expansion(text)


# --- shapes and errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "slice_text"),
    [("quadratic[3:7]", "[3:7]"), ("identity[:6]", "[:6]"), ("max2[5:]", "[5:]"), ("power0.8[5]", "[5]")],
)
def test_a_slice_beyond_the_width_is_an_error(text, slice_text):
    for call in (lambda e: e.size(5, 3), lambda e: e(np.zeros((15, 2)), 3), lambda e: e.identity_rows(15, 3)):
        with pytest.raises(ValueError, match="width 5") as error:
            call(parse_expansion("identity | " + text))
        assert f"'{text}'" in str(error.value)
        assert f"slice {slice_text}" in str(error.value)


def test_max2_of_a_single_input_is_an_error():
    for text, width, children in (("max2", 1, 1), ("max2[2]", 5, 3), ("max2[4:]", 5, 1)):
        with pytest.raises(ValueError, match="at least 2 inputs"):
            parse_expansion(text).size(width, children)
    assert parse_expansion("max2").size(1, 3) == 2


def test_wrong_arrays_are_errors():
    expansion, X = parse_expansion("identity | quadratic"), np.ones((2, 3))
    out = np.empty((5, 3))
    for bad in (X.astype(int), X.astype(np.float16), X.tolist()):
        with pytest.raises(TypeError, match="float32 or float64"):
            expansion(bad)
    with pytest.raises(ValueError, match="n_inputs, n_samples"):
        expansion(X[0])
    with pytest.raises(ValueError, match="cannot be shared by 3 children"):
        expansion(X, children=3)
    with pytest.raises(ValueError, match="at least 1"):
        expansion(X, children=0)
    with pytest.raises(ValueError, match="dtype of X"):
        expansion.backward(X, out.astype(np.float32))
    with pytest.raises(ValueError, match=re.escape("shape (5, 3)")):
        expansion.backward(X, out[:, :2])
    with pytest.raises(ValueError, match="at least 1"):
        expansion.size(0)


def test_properties():
    linear = ["identity", "identity[:2]", "identity[:2] | identity[1:]", "polynomial1"]
    assert [parse_expansion(text).is_linear for text in linear] == [True] * 4
    assert not parse_expansion("identity | power1").is_linear
    assert not parse_expansion("polynomial2").is_linear
    exact = ["identity", "identity[:3]", "identity[0:]", "polynomial1"]
    assert [parse_expansion(text).layout(3).is_identity for text in exact] == [True] * 4
    other = ["identity[:2]", "identity | identity", "identity[:1] | identity[1:]", "power1", "polynomial2"]
    assert [parse_expansion(text).layout(3).is_identity for text in other] == [False] * 5


def test_polynomial2_is_identity_then_quadratic():
    X = block(4, 6)
    np.testing.assert_array_equal(
        parse_expansion("polynomial2[1:]")(X, 2), parse_expansion("identity[1:] | quadratic[1:]")(X, 2)
    )


def test_expansions_are_frozen_values():
    a, b = parse_expansion("identity"), parse_expansion("quadratic[:3]")
    assert a | b == parse_expansion("identity | quadratic[:3]") != b | a
    assert "identity" | b == a | "quadratic[:3]" == as_expansion([a, "quadratic[:3]"])
    assert len({a, b, parse_expansion("identity")}) == 2
    assert a != "identity"
    assert parse_expansion("power2") != parse_expansion("signed_power2")
    with pytest.raises(AttributeError):
        a.terms = ()
    with pytest.raises(ValueError, match="at least one term"):
        Expansion(())
    with pytest.raises(TypeError, match="parse_expansion"):
        Expansion(("identity",))


# --- functions ------------------------------------------------------------------------------------


def cubes_and_sum(X):
    return np.hstack([X**3, X.sum(axis=1, keepdims=True)])


def cubes_and_sum_gradient(X, G):
    return 3 * X**2 * G[:, :-1] + G[:, -1:]


@pytest.mark.parametrize("thing", [None, "quadratic", 3, parse_expansion("quadratic")], ids=repr)
def test_what_is_no_function_of_arrays_is_refused(thing):
    with pytest.raises(TypeError, match="func must be a function of an array"):
        FunctionExpansion(thing)


def test_functions_take_samples_as_rows():
    expansion = "identity[:2]" | as_expansion(cubes_and_sum) | "max2"
    assert str(expansion) == "identity[:2] | <function cubes_and_sum> | max2"
    assert expansion.size(3, 2) == 4 + 7 + 5
    X = block(6, 6)
    np.testing.assert_array_equal(expansion(X, 2)[4:11], np.vstack([X**3, X.sum(axis=0)]))
    assert expansion(X.astype(np.float32), 2).dtype == np.float32
    assert not expansion.is_linear
    np.testing.assert_array_equal(expansion.identity_rows(6, 2), [0, 1, -1, 2, 3, -1])
    with pytest.raises(ValueError, match="no text form"):
        parse_expansion(str(expansion))
    with pytest.raises(TypeError, match=r"<function cubes_and_sum> has no gradient.*gradient="):
        expansion.backward(X, expansion(X, 2), 2)


def test_functions_with_a_gradient_have_a_backward():
    expansion = "power0.8" | FunctionExpansion(cubes_and_sum, gradient=cubes_and_sum_gradient)
    X = np.random.default_rng(7).uniform(0.5, 2, (4, 5))
    G = np.random.default_rng(8).standard_normal((9, 5))
    expected = numerical_gradient(expansion, X, G, 2)
    np.testing.assert_allclose(expansion.backward(X, G, 2), expected, rtol=1e-5, atol=1e-5)
    assert expansion.backward(X.astype(np.float32), G.astype(np.float32), 2).dtype == np.float32


def test_functions_are_values_too():
    a = FunctionExpansion(cubes_and_sum, name="cubes")
    assert str(a) == "<function cubes>"
    assert a.size(2) == 3
    copy = pickle.loads(pickle.dumps(a))
    assert copy == a == FunctionExpansion(cubes_and_sum, "cubes")
    assert hash(copy) == hash(a)
    assert a != FunctionExpansion(cubes_and_sum)
    assert as_expansion([a, "identity"]) == a | "identity"
    assert str(as_expansion(np.tanh)) == "<function tanh>"


def test_the_size_of_a_function_is_found_by_one_call():
    calls = []

    def f(X):
        calls.append(X.shape)
        return X

    expansion = FunctionExpansion(f)
    assert [expansion.size(4), expansion.size(4), expansion.size(2, 2)] == [4, 4, 4]
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("func", "says"),
    [
        (lambda X: X[:, 0], "must map samples as rows"),
        (lambda X: X.T, "must map samples as rows"),
        (lambda X: X[:1], "must map samples as rows"),
        (lambda X: X.astype(complex), "real numbers"),
        (lambda X: X.astype(str), "real numbers"),
        (lambda X: X[:, : 2 + (len(X) > 2)], "when tried on zeros"),
        (lambda X: X.__setitem__(0, 1), "read-only|must map"),
    ],
)
def test_results_of_functions_are_checked(func, says):
    X = np.ones((3, 4))
    with pytest.raises(ValueError, match=says):
        FunctionExpansion(func)(X)
    np.testing.assert_array_equal(X, 1)


def test_a_function_cannot_change_the_input():
    def careless(X):
        if X.any():
            X[0] = 7
        return X

    X = np.ones((3, 4))
    with pytest.raises(ValueError, match="read-only"):
        FunctionExpansion(careless)(X)
    np.testing.assert_array_equal(X, 1)


@pytest.mark.parametrize("spec", [None, 3, 0.8, {"identity"}, int])
def test_other_things_are_not_expansions(spec):
    with pytest.raises(TypeError, match="must be a text such as") as error:
        as_expansion(spec)
    assert repr(spec) in str(error.value)
    with pytest.raises(TypeError, match="must be a text such as"):
        as_expansion(["identity", spec])
