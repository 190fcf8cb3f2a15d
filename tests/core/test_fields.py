"""Receptive fields: where they start, what they hold, and what is said when they do not fit."""

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from higsfa.core.fields import Fields, check_fit, receptive_fields

axis = st.integers(1, 12).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size), st.integers(1, size)))


def fits(fields):
    return all((size - f) % s == 0 for size, f, s in zip(fields.grid, fields.field, fields.stride, strict=True))


def build(axes, pad):
    grid, field, stride = zip(*axes, strict=True)
    return Fields(grid, field, stride, pad)


def covered(fields):
    return set(fields.index.ravel().tolist())


@given(st.lists(axis, min_size=1, max_size=3))
def test_fields_are_numpys_sliding_windows_in_row_major_order(axes):
    fields = build(axes, pad=False)
    numbers = np.arange(np.prod(fields.grid)).reshape(fields.grid)
    windows = sliding_window_view(numbers, fields.field)
    windows = windows[tuple(slice(None, None, step) for step in fields.stride)]
    assert fields.shape == windows.shape[: len(axes)]
    assert np.array_equal(fields.index, windows.reshape(-1, fields.children))


@given(st.lists(axis, min_size=1, max_size=3))
def test_padding_adds_only_fields_that_end_at_the_border(axes):
    plain, padded = build(axes, pad=False), build(axes, pad=True)
    for starts, more, (size, f, s) in zip(plain.starts, padded.starts, axes, strict=True):
        assert more[: len(starts)] == starts
        assert more[-1] + f == size
        assert len(more) - len(starts) == int((size - f) % s != 0)


@given(st.lists(axis, min_size=1, max_size=3))
def test_padded_fields_without_gaps_cover_the_grid(axes):
    padded = build([(size, f, min(f, s)) for size, f, s in axes], pad=True)
    assert covered(padded) == set(range(int(np.prod(padded.grid))))


@given(st.lists(axis, min_size=1, max_size=3))
def test_check_fit_complains_exactly_where_a_border_would_be_left_out(axes):
    fields = build(axes, pad=False)
    check_fit(build(axes, pad=True), "layer 1")
    if fits(fields):
        check_fit(fields, "layer 1")
    else:
        with pytest.raises(ValueError, match="does not fit the grid"):
            check_fit(fields, "layer 1")


@given(st.integers(2, 3000), st.integers(1, 3000), st.integers(1, 3000))
@example(60, 20, 50)
@example(90, 30, 50)
@example(2999, 1000, 1000)
def test_the_message_prints_the_grid_and_choices_near_by_that_do_fit(size, field, stride):
    field = min(field, size)
    fields = Fields((7, size), (7, field), (1, stride))
    if fits(fields):
        return
    with pytest.raises(ValueError, match=f"layer 4: .* grid 7x{size} .*dimension 1.*pad=True") as error:
        check_fit(fields, "layer 4")
    choices = re.findall(r"field (\d+) stride (\d+)", str(error.value))
    assert choices
    for f, s in ((int(f), int(s)) for f, s in choices):
        check_fit(Fields((7, size), (7, f), (1, s)), "layer 4")
        assert s <= f  # without gaps
        assert abs(f - field) <= 16 or f == size


def test_a_field_larger_than_the_grid_is_refused_even_with_padding():
    for pad in (False, True):
        with pytest.raises(ValueError, match=r"layer 2: field \(3, 5\) is larger than the grid 3x4.*at most 4"):
            check_fit(Fields((3, 4), (3, 5), (1, 1), pad), "layer 2")


def test_extent_in_pixels_is_what_a_nodes_inputs_reach():
    layers = [
        Fields((20, 13), (6, 3), (2, 2)),
        Fields((8, 6), (3, 2), (2, 1), pad=True),
        Fields((4, 5), (2, 1), (1, 1)),
    ]
    reach = [np.arange(20 * 13)[:, None]]
    for fields, (extent, step) in zip(layers, receptive_fields(layers), strict=True):
        reach.append(reach[-1][fields.index].reshape(fields.n_nodes, -1))
        rows, columns = np.unravel_index(reach[-1], (20, 13))
        assert extent == (np.ptp(rows, axis=1).max() + 1, np.ptp(columns, axis=1).max() + 1)
        corner = np.stack([rows.min(axis=1), columns.min(axis=1)]).reshape(2, *fields.shape)
        assert step == (corner[0, 1, 0] - corner[0, 0, 0], corner[1, 0, 1] - corner[1, 0, 0])
