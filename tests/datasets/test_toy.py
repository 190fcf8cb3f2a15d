"""The toy signals have the slowness they should have, and the experiment shows what the paper says."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from higsfa.datasets import make_toy, toy
from higsfa.datasets.toy import run_toy


def test_signals_are_signs_that_switch_at_their_rates_independently():
    X, signals = make_toy(100_000, switch_rates=(0.01, 0.1, 0.3))
    assert list(signals) == ["s1", "s2", "s3", "n"]
    S = np.column_stack(list(signals.values()))
    assert_array_equal(np.abs(S), 1)
    rates = np.mean(np.diff(S, axis=0) != 0, axis=0)
    deviation = np.sqrt(rates * (1 - rates) / len(S))
    assert np.all(np.abs(rates - [0.01, 0.1, 0.3, 0.5]) < 4.5 * deviation)
    # Effective numbers of samples shrink with the correlation in time.
    assert np.abs(np.corrcoef(S.T) - np.eye(4)).max() < 4.5 * np.sqrt(1 / (2 * 0.01) / len(S))
    assert_array_equal(X, np.column_stack([S[:, 1], S[:, 0] * S[:, 3], S[:, 2], S[:, 3]]))


def test_the_default_rates_are_in_the_order_of_the_paper():
    _, signals = make_toy(40_000)
    delta = [np.mean(np.diff(signal) ** 2) for signal in signals.values()]
    np.testing.assert_allclose(delta, 4 * np.array([0.01, 0.05, 0.2, 0.5]), rtol=0.2)
    assert make_toy()[0].shape == (10_000, 4)
    assert_array_equal(make_toy(50, random_state=3)[0], make_toy(50, random_state=3)[0])
    assert np.any(make_toy(50, random_state=3)[0] != make_toy(50, random_state=4)[0])


@pytest.fixture(scope="module")
def rows():
    return run_toy()


def test_only_a_network_that_keeps_information_finds_the_slowest_signal(rows):
    assert [(name, kept) for name, kept, *_ in rows] == [
        ("quadratic SFA", 1),
        ("quadratic SFA", 2),
        ("quadratic iSFA", 2),
    ]
    _, signals = make_toy()
    slow, slower = (np.mean(np.diff(signals[name]) ** 2) / np.var(signals[name]) for name in ("s2", "s1"))
    for (_, _, delta, with_s1, with_s2), found in zip(rows, ("s2", "s2", "s1"), strict=True):
        assert delta == pytest.approx(slower if found == "s1" else slow, rel=0.05)
        assert (with_s1 > 0.99) == (found == "s1")
        assert (with_s2 > 0.99) == (found == "s2")
        assert 0 <= min(with_s1, with_s2) < 0.2


def test_the_demonstration_prints_what_it_found(rows, monkeypatch, capsys):
    monkeypatch.setattr(toy, "run_toy", lambda: rows)
    toy.main()
    text = capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("quadratic")]
    assert [("s1, the slowest signal" in line, "s2; s1 was lost" in line) for line in lines] == [
        (False, True),
        (False, True),
        (True, False),
    ]
    assert [line.split()[2:5] for line in lines] == [["1", "of", "2"], ["2", "of", "2"], ["2", "of", "2"]]
    for line, (*_, delta, with_s1, with_s2) in zip(lines, rows, strict=True):
        assert line.split()[5:8] == [f"{delta:.3f}", f"{with_s1:.3f}", f"{with_s2:.3f}"]
    _, signals = make_toy()
    for name, signal in signals.items():
        assert f"{name} {np.mean(np.diff(signal) ** 2):.3f}" in text
