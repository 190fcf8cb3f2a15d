"""Hostile files by the thousand: what is made of good ones, and what reading and using them may lead to.

Every kind of file has seeds, a function that makes a damaged or invented file of them, and one that uses a file as a
user would. A use ends well, or in an error that is documented, which is then its outcome; everything else is a bug.
``tests/models/test_fuzz.py`` counts the work of some files, ``tests/soak_fuzz.py`` tries very many.
"""

import copy
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Kind(NamedTuple):
    """A kind of file: how seeds are made, how files are made of them, and how one is used."""

    seeds: Callable[[Path], Any]
    mutate: Callable[[Any, np.random.Generator], bytes]
    use: Callable[[Path, bool], str]
    suffix: str = ""


NUMBERS = [0, 1, -1, 2, 3, 5, 7, 100, 255, 2**15, 2**16, 2**20, 2**24, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), 10**18]
REALS = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 1.0, -1.0, 1e-3]


def pick(rng: np.random.Generator, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


# ---------------------------------------------------------------------- anything in JSON, and bytes


def places(value: Any) -> list[tuple[Any, Any]]:
    """All containers and keys inside a JSON value."""
    found = []
    if isinstance(value, dict | list):
        for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
            found += [(value, key), *places(inner)]
    return found


def mutate_json(value: Any, rng: np.random.Generator, pool: list[Any]) -> None:
    """Change one place in a JSON value, in place."""
    found = places(value)
    if not found:
        return
    container, key = pick(rng, found)
    change = rng.integers(8)
    if change == 0:
        del container[key]
    elif change == 1 and isinstance(container, list):
        container[int(key) : int(key)] = [copy.deepcopy(container[key])] * int(rng.choice([1, 2, 40]))
    elif change == 1:
        container[str(pick(rng, pool))[:20]] = copy.deepcopy(container[key])
    elif change == 2 and type(container[key]) is int:
        container[key] += int(rng.integers(-3, 4))
    elif change == 3 and type(container[key]) is int:
        container[key] *= int(10 ** rng.integers(1, 9))
    elif change == 4 and type(container[key]) is int:
        container[key] = pick(rng, NUMBERS)
    elif change == 5:
        other, place = pick(rng, found)
        container[key] = copy.deepcopy(other.get(place) if isinstance(other, dict) else key)
    elif change == 6 and isinstance(container[key], str):
        container[key] = mutate_bytes(container[key].encode("utf-8", "surrogatepass"), rng).decode("utf-8", "replace")
    else:
        container[key] = copy.deepcopy(pick(rng, pool))


def mutate_bytes(data: bytes, rng: np.random.Generator, reach: int | None = None) -> bytes:
    """Change some bytes among the first `reach`."""
    reach = max(1, len(data) if reach is None else min(reach, len(data)))
    raw = bytearray(data or b"\0")
    at, n = int(rng.integers(reach)), int(rng.integers(1, 9))
    change = rng.integers(7)
    if change == 0:
        for _ in range(n):
            raw[int(rng.integers(reach))] ^= 1 << int(rng.integers(8))
    elif change == 1:
        raw[at:at] = rng.bytes(n)
    elif change == 2:
        del raw[at : at + n]
    elif change == 3:
        raw[at : at + n] = bytes([pick(rng, [0, 255, 0x7F, 0x22, 0x7B, 0x5B])]) * n
    elif change == 4:
        del raw[at:]
    elif change == 5:
        raw[at:at] = raw[at : at + 64]
    else:
        number = pick(rng, NUMBERS) % 2**64
        size = pick(rng, [1, 2, 4, 8])
        raw[at : at + size] = (number % 256**size).to_bytes(size, pick(rng, ["little", "big"]))
    return bytes(raw)


def quietly(work: Callable[[], Any]) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return work()


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
