"""Model files taken apart, put together again, and loaded while memory and calls are counted."""

import cProfile
import json
import tracemalloc
from dataclasses import dataclass
from typing import Any

from higsfa import ModelFileError, load

MEMORY = 16 * 10**6
"""Loading may take so many bytes beyond twice the size of the file."""
CALLS = 20_000
"""And so many calls of functions, in Python or from there into compiled code, and two for each byte of the header."""


def taken_apart(data):
    """Header and list of arrays of a file, and the bytes of the arrays."""
    length = int.from_bytes(data[:8], "little")
    listing = json.loads(data[8 : 8 + length])
    header = json.loads(listing.pop("__metadata__")["higsfa"])
    return header, listing, data[8 + length :]


def put_together(header, listing, arrays):
    header = header if isinstance(header, str) else json.dumps(header)
    return with_header(json.dumps({"__metadata__": {"higsfa": header}} | listing), arrays)


def with_header(outer, arrays=b""):
    outer = outer if isinstance(outer, bytes) else outer.encode()
    return len(outer).to_bytes(8, "little") + outer + arrays


def inner_header(data):
    return taken_apart(data)[0]


def edited(data, path, value):
    """The file with one value of its header replaced, by a path such as "trained.0.field"; KeyError takes it out."""
    header, listing, arrays = taken_apart(data)
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    record = header
    for key in way:
        record = record[key]
    if value is KeyError:
        del record[last]
    else:
        record[last] = value
    return put_together(header, listing, arrays)


@dataclass
class Count:
    """What something took: most bytes at a time, and calls of functions."""

    result: Any
    memory: int
    calls: int


def counted(work, *args):
    """Do some work; a documented error is its result, too."""
    profiler = cProfile.Profile()
    tracemalloc.start()
    profiler.enable()
    try:
        result = work(*args)
    except ModelFileError as error:
        result = error
    finally:
        profiler.disable()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return Count(result, peak, sum(entry.callcount for entry in profiler.getstats()))


def attempt(data, path):
    """Load bytes; the result is a model or the error. Memory is counted beyond twice the size of the file."""
    path.write_bytes(data)
    count = counted(load, path)
    count.memory -= 2 * len(data)
    return count


def accepted(data, path):
    """The model in these bytes, which must take little memory and few calls to load."""
    count = attempt(data, path)
    if isinstance(count.result, Exception):
        raise count.result
    _check(count, data)
    return count.result


def refused(data, path):
    """The message with which bytes are refused, after few calls and without much memory."""
    count = attempt(data, path)
    assert isinstance(count.result, ModelFileError), f"loaded as {count.result}"
    _check(count, data)
    return str(count.result)


def _check(count, data):
    assert count.memory <= MEMORY
    assert count.calls <= CALLS + 2 * min(len(data), 2**18)
