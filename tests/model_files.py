"""Model files taken apart, put together again, and loaded with an eye on memory and time."""

import json
import time
import tracemalloc

from higsfa import ModelFileError, load

MEMORY = 16 * 10**6
"""Loading may take so much beyond twice the size of the file."""
SECONDS = 2.0
"""And at most so long, in processor time, for the small files of the tests."""


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


def attempt(data, path):
    """Load bytes; returns the model or the error, memory beyond twice their size, and processor time."""
    path.write_bytes(data)
    tracemalloc.start()
    begin = time.process_time()
    try:
        outcome = load(path)
    except ModelFileError as error:
        outcome = error
    seconds = time.process_time() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return outcome, peak - 2 * len(data), seconds


def refused(data, path):
    """The message with which bytes are refused, quickly and without much memory."""
    outcome, memory, seconds = attempt(data, path)
    assert isinstance(outcome, ModelFileError), f"loaded as {outcome}"
    assert memory <= MEMORY
    assert seconds <= SECONDS
    return str(outcome)
