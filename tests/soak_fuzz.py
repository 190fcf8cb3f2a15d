"""Very many hostile files, with limits on time and memory: only documented errors may come of them.

    python tests/soak_fuzz.py                          as in make soak
    python tests/soak_fuzz.py --models 1000 --only models --first 5000

A file that breaks a rule is named by the number that makes it again; the exit status is 1 then.
"""

import argparse
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

from fuzz_models import MODELS
from fuzz_pictures import PICTURES
from fuzz_settings import ARRAYS, CONFIGS, MAPS

KINDS = {"models": MODELS, "pictures": PICTURES, "configs": CONFIGS, "npz": ARRAYS, "npy": MAPS}
COUNTS = {"models": 200_000, "pictures": 20_000, "configs": 5_000, "npz": 5_000, "npy": 5_000}
SECONDS = 5.0
"""Of processor time, for one file."""
MEMORY = 2**30
"""Bytes of address space, beyond what a process has that has read and used a good file of each kind."""
BATCH = 500


class TooSlowError(BaseException):
    """No error of the library's, so that nobody catches it."""


def too_slow(*_):
    raise TooSlowError(f"more than {SECONDS:g} s")


def address_space():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def prepare(name, folder):
    """In a child: make seeds, use each of them once, and set the limits."""
    global kind, seeds, path
    kind = KINDS[name]
    own = Path(tempfile.mkdtemp(dir=folder))
    seeds, path = kind.seeds(own), own / f"file{kind.suffix}"
    for data in seeds.values():
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        kind.use(path, True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # decoders of pictures write there
    signal.signal(signal.SIGPROF, too_slow)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + MEMORY,) * 2)


def try_batch(first):
    """Outcomes of some files, what went wrong, and the slowest of them."""
    outcomes, wrong, slowest = Counter(), [], (0.0, -1)
    for seed in range(first, first + BATCH):
        path.write_bytes(kind.mutate(seeds, np.random.default_rng(seed)))
        start = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            outcome = kind.use(path, seed % 8 == 0)
        except (Exception, TooSlowError) as error:
            outcome = f"{type(error).__name__}, which is not documented"
            wrong.append((seed, "".join(traceback.format_exception(error, limit=-4))))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        outcomes[outcome] += 1
        slowest = max(slowest, (time.process_time() - start, seed))
    return outcomes, wrong, slowest


def soak(name, first, count, processes, folder):
    """Try files of one kind; returns what went wrong."""
    outcomes, wrong, slowest, start = Counter(), [], (0.0, -1), time.monotonic()
    with multiprocessing.get_context("spawn").Pool(processes, prepare, (name, folder)) as pool:
        for some, errors, slow in pool.imap_unordered(try_batch, range(first, first + count, BATCH)):
            outcomes += some
            wrong += errors
            slowest = max(slowest, slow)
            for seed, text in errors[:3]:
                print(f"{name} {seed}:\n{text}", flush=True)
    seconds = time.monotonic() - start
    told = ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes.most_common())
    print(
        f"{name}: {outcomes.total():,} files in {seconds:.0f} s: {told}; slowest {slowest[0]:.2f} s, file {slowest[1]}"
    )
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in COUNTS.items():
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--first", type=int, default=10_000, help="number of the first file")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        wrong = [soak(name, given.first, getattr(given, name), given.processes, folder) for name in given.only]
    sys.exit(1 if any(wrong) else 0)


if __name__ == "__main__":
    main()
