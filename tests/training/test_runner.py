"""Work on threads: in order, stopped by the first error, never waiting for itself; BLAS is given back as it was."""

import gc
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from higsfa.training.runner import one_blas_thread, one_by_one, threads


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def in_a_process(code, *, seconds=120):
    """Run code that might hang; one that does is shown by its stacks."""
    guard = f"import faulthandler; faulthandler.dump_traceback_later({seconds}, exit=True)\n"
    return subprocess.run([sys.executable, "-c", guard + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 100])
def test_every_item_is_done_once(n_jobs, n):
    done = []
    with threads(n_jobs) as run:
        run(done.append, n)
        assert sorted(done) == list(range(n))
        run(done.append, n)
    assert sorted(done) == sorted(2 * list(range(n)))


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_as_many_items_are_done_at_once_as_there_are_jobs(n_jobs):
    meeting = threading.Barrier(n_jobs)
    seen, before = set(), set(threading.enumerate())

    def work(p):
        seen.add(threading.get_ident())
        meeting.wait(60)  # breaks, with an error, unless all of them come together

    with threads(n_jobs) as run:
        run(work, n_jobs)
        assert len(seen) == n_jobs
        assert threading.get_ident() in seen
        run(work, 4 * n_jobs)
        assert len(set(threading.enumerate()) - before) == n_jobs - 1


def test_items_within_items_run_on_the_thread_that_asks_for_them():
    found = in_a_process(
        """
import threading
from higsfa.training.runner import threads

calls = []
with threads(2) as run:
    def outer(p):
        me = threading.get_ident()
        def inner(q):
            assert threading.get_ident() == me
            run(lambda r: calls.append((p, q, r)), 3)
        run(inner, 3)
        with threads(4) as other:  # as where a function expansion calls transform
            other(inner, 3)
    run(outer, 8)
print(len(calls), len(set(calls)))
"""
    )
    assert found.stdout.split() == [str(8 * 2 * 9), str(8 * 9)], found.stderr


def test_nothing_is_begun_after_an_error():
    n_jobs, done = 2, []
    failed = threading.Event()

    def work(p):
        if p == 3:
            failed.set()
            raise ZeroDivisionError("node 3")
        if p > 3:
            failed.wait(60)
            time.sleep(0.05)  # the error is on its way
        done.append(p)

    with threads(n_jobs) as run:
        with pytest.raises(ZeroDivisionError, match="node 3"):
            run(work, 400)
        assert {0, 1, 2} <= set(done)
        assert len(done) <= 3 + n_jobs
        done.clear()
        run(done.append, 5)  # the runner is as good as before
    assert sorted(done) == list(range(5))


@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_the_error_is_the_one_that_a_single_thread_meets_first(n_jobs):
    bad = (5, 6, 7, 30)

    def work(p):
        if p == 5:
            time.sleep(0.05)  # the others fail earlier
        if p in bad:
            raise ValueError(p)

    with threads(n_jobs) as run, pytest.raises(ValueError, match=r"^5$"):
        run(work, 100)


def test_ctrl_c_stops_the_work_at_once():
    """Whether the calling thread is at work or waits for a helper; the interrupt, not an error it causes, is raised."""
    found = in_a_process(
        """
import os, signal, threading, time
from higsfa.training.runner import threads

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
main, n_jobs = threading.main_thread(), 3
for where in ("at work", "waiting"):
    done, ready, interrupted = [], threading.Event(), threading.Event()
    def work(p):
        done.append(p)
        while where == "waiting" and len(done) < n:  # each thread has one item
            time.sleep(0.001)
        if threading.current_thread() is main:
            if where == "waiting":
                return
            ready.set()
            while True:
                time.sleep(0.01)
        if where == "waiting":
            time.sleep(0.05)
            ready.set()
        interrupted.wait(60)
        raise ValueError("because of the interrupt")
    def press():
        ready.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        interrupted.set()
    n = 400 if where == "at work" else 3
    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        with threads(n_jobs) as run:
            run(work, n)
    except KeyboardInterrupt:
        print(where, len(done))
    pressing.join()
"""
    )
    assert found.stdout.splitlines()[0] in ("at work 1", "at work 2", "at work 3"), found.stderr
    assert found.stdout.splitlines()[1] == "waiting 3", found.stderr


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_helpers_treat_overflow_as_the_calling_thread_does(n_jobs):
    seen = []
    with threads(n_jobs) as run, np.errstate(over="raise", divide="ignore"):
        run(lambda p: seen.append(np.geterr()), 20)
        assert seen == [np.geterr()] * 20


def test_blas_runs_on_one_thread_until_the_last_user_is_done():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        assert 2 in before
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert set(blas_threads()) == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == before


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_users_that_come_and_go_on_many_threads_leave_blas_as_it_was(n_jobs):
    start = threading.Barrier(6)

    def use():
        start.wait(60)
        for _ in range(10):
            with threads(n_jobs) as run:
                run(lambda p: None, 3)
                assert set(blas_threads()) == {1}

    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        users = [threading.Thread(target=use) for _ in range(6)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        assert blas_threads() == before


def test_others_may_limit_blas_on_their_own_threads_afterwards():
    found = []

    def limit():
        with threadpool_limits(3, user_api="blas"):
            found.extend(blas_threads())

    with threads(2) as run:
        run(lambda p: None, 3)
    other = threading.Thread(target=limit)
    other.start()
    other.join()
    assert set(found) == {3}


def test_an_error_gives_blas_back():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with pytest.raises(KeyError), one_blas_thread():
            raise KeyError
        with pytest.raises(KeyError), threads(2) as run:
            run({}.__getitem__, 3)
        assert blas_threads() == before


def test_one_by_one_keeps_the_order():
    done = []
    one_by_one(done.append, 5)
    assert done == [0, 1, 2, 3, 4]


def test_an_error_is_freed_with_what_its_frames_hold():
    class Thing:
        pass

    things = []

    def work(p):
        thing = Thing()
        things.append(weakref.ref(thing))
        raise ArithmeticError(str(p))

    gc.disable()
    try:
        with threads(2) as run:
            try:
                run(work, 2)
            except ArithmeticError:
                things.append(lambda: None)
        assert len(things) > 1
        assert all(thing() is None for thing in things)
    finally:
        gc.enable()
