"""The threads that work is done on, and BLAS held at one thread meanwhile.

Items are handed out in ascending order, to the calling thread and to helpers. An error stops the handing out; a call
from within an item runs on the thread that makes it. So nothing ever waits for a thread that waits for it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

Work = Callable[[int], None]

# glibc gives the memory of freed arrays back from a threshold on, which is small until a larger array has been freed,
# and the system clears every page that it hands out again: a tenth of the time that solving nodes takes. This array is
# the largest one that moves the threshold, to 64 MiB. It is never written to, so it takes no memory.
np.empty(2**25 - 2**16, np.uint8)


class Runner(Protocol):
    """Calls work(0) .. work(n - 1), maybe on several threads. The first error ends it, and is raised."""

    def __call__(self, work: Work, n: int) -> None: ...


def one_by_one(work: Work, n: int) -> None:
    """A runner on the calling thread."""
    for p in range(n):
        work(p)


@contextmanager
def threads(n_jobs: int) -> Iterator[Runner]:
    """A runner on `n_jobs` threads, of which the calling one is the first; BLAS is held at one thread."""
    with one_blas_thread():
        if n_jobs == 1:
            yield one_by_one
            return
        n_helpers = n_jobs - 1
        with ThreadPoolExecutor(n_helpers) as helpers:
            yield ThreadRunner(helpers, n_helpers)


class ThreadRunner:
    """A runner on the calling thread and some helpers."""

    def __init__(self, helpers: ThreadPoolExecutor, n_helpers: int) -> None:
        self._helpers, self._n_helpers = helpers, n_helpers

    def __call__(self, work: Work, n: int) -> None:
        if _here.at_work or n < 2:
            one_by_one(work, n)
            return
        items = _Items(work, n)
        helping: list[Future[None]] = []
        try:
            for _ in range(min(self._n_helpers, n - 1)):
                helping.append(self._helpers.submit(items.do_with, np.geterr()))
            items.do()
        finally:  # an interrupt may arrive anywhere above
            items.stop()
            wait(helping)
        items.raise_error()


class _Here(threading.local):
    """Of each thread: whether it does items of a runner."""

    at_work = False


_here = _Here()


class _Items:
    """The items of one call, handed out in ascending order until one fails."""

    def __init__(self, work: Work, n: int) -> None:
        self._work, self._n = work, n
        self._next = 0
        self._errors: list[tuple[int, BaseException]] = []
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Hand out nothing any more."""
        with self._lock:
            self._next = self._n

    def do(self) -> None:
        """Do items as long as there are any."""
        _here.at_work = True
        try:
            while (p := self._take()) < self._n:
                try:
                    self._work(p)
                except BaseException as error:
                    self._errors.append((p, error))
                    self.stop()
        finally:
            _here.at_work = False

    def do_with(self, floating_point_errors: Mapping[str, Any]) -> None:
        """The same on a helper, which numpy's settings of the calling thread do not reach by themselves."""
        with np.errstate(**floating_point_errors):
            self.do()

    def _take(self) -> int:
        with self._lock:
            p, self._next = self._next, self._next + 1
        return p

    def raise_error(self) -> None:
        """Raise what went wrong: an interrupt, or the error that would have been the first on one thread.

        Items below one that failed have all been begun, so theirs are known too.
        """
        errors, self._errors = self._errors, []
        if errors:
            try:
                raise min(errors, key=lambda one: (isinstance(one[1], Exception), one[0]))[1]
            finally:
                del errors  # an error knows this frame through its traceback: no circle


# ---------------------------------------------------------------------------------------------- BLAS


class _OneBlasThread:
    """Counts who wants BLAS at one thread: the first to come sets it, the last to go gives back what was there.

    The number of threads of BLAS belongs to the process. If each of two threads set and restored it on its own, the
    second would note 1 as the old number, and might be the last to restore.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_users = 0
        self._before: list[tuple[Any, int]] | None = None
        self._n_modules = 0
        self._known: tuple[Any, ...] = ()  # libraries, looked for again when there are more modules

    def enter(self) -> None:
        with self._lock:
            if self._before is None:
                if self._n_modules != len(sys.modules):
                    self._n_modules = len(sys.modules)
                    self._known = tuple(ThreadpoolController().select(user_api="blas").lib_controllers)
                self._before = [(library, library.num_threads) for library in self._known]
                for library in self._known:
                    _disown(library)
                    library.set_num_threads(1)
            self._n_users += 1

    def leave(self) -> None:
        with self._lock:
            self._n_users -= 1
            if self._n_users == 0 and self._before is not None:
                for library, number in self._before:
                    _disown(library)
                    library.set_num_threads(number)
                    _disown(library)
                self._before = None


def _disown(library: Any) -> None:
    """threadpoolctl 3.8 ignores all threads but the one that has limited OpenBLAS before; here any may be the last."""
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)


_blas = _OneBlasThread()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS at one thread, in the whole process, until everyone who asked for it is done."""
    _blas.enter()
    try:
        yield
    finally:
        _blas.leave()
