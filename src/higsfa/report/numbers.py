"""How numbers are written: as many digits as tell the values of a column apart, and no more."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor, log10


def decimals_for(values: Iterable[float], errors: Iterable[float] = (), least: int = 0) -> int:
    """Digits after the point so that the smallest value shows three digits and the smallest error one.

    Examples
    --------
    >>> from higsfa.report.numbers import decimals_for
    >>> decimals_for([3.497, 9.33]), decimals_for([3.497, 9.33], [0.008]), decimals_for([1200.0])
    (2, 3, 0)
    """
    places = [least]
    places += [2 - floor(log10(size)) for size in _smallest(values)]
    places += [-floor(log10(size)) for size in _smallest(errors)]
    return min(max(places), 4)


def _smallest(values: Iterable[float]) -> list[float]:
    sizes = [abs(value) for value in values if value]
    return [min(sizes)] if sizes else []


def fixed(value: float, decimals: int) -> str:
    """A number with a given number of decimals; huge ones in powers of ten.

    Examples
    --------
    >>> from higsfa.report.numbers import fixed
    >>> fixed(12345.678, 1), fixed(-0.5, 2), fixed(3e30, 2)
    ('12,345.7', '−0.50', '3.00e+30')
    """
    text = f"{value:,.{decimals}f}" if abs(value) < 1e9 else f"{value:.{decimals}e}"
    return text.replace("-", "−", 1) if text.startswith("-") else text


def short(value: float) -> str:
    """A number on its own, with three digits that count.

    Examples
    --------
    >>> from higsfa.report.numbers import short
    >>> short(4.1234), short(0.25), short(5000)
    ('4.12', '0.25', '5,000')
    """
    text = fixed(value, decimals_for([value]))
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def percent(fraction: float, decimals: int = 1) -> str:
    """A fraction as a percentage, with a space that does not break.

    Examples
    --------
    >>> from higsfa.report.numbers import percent
    >>> percent(0.934).split()
    ['93.4', '%']
    """
    return f"{fixed(100 * fraction, decimals)}\N{NO-BREAK SPACE}%"


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours.

    Examples
    --------
    >>> from higsfa.report.numbers import duration
    >>> duration(1.24), duration(340), duration(9000)
    ('1.2 s', '5.7 min', '2.5 h')
    """
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{fixed(seconds / size, 1)} {unit}"
    return f"{fixed(seconds, 1)} s"


def shortened(text: str, longest: int = 40) -> str:
    """Text for a place of limited width.

    Examples
    --------
    >>> from higsfa.report.numbers import shortened
    >>> shortened("a long name", 6)
    'a lon…'
    """
    plain = "".join(character if character.isprintable() else " " for character in text)
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
