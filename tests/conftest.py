"""Settings and fixtures that all tests share."""

import signal

import pytest
from hypothesis import HealthCheck, settings

# Timing of single examples says nothing on a busy machine.
settings.register_profile("higsfa", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("higsfa")


@pytest.fixture(scope="session")
def real(tmp_path_factory):
    """A small real experiment, trained once; see real_run.py. Tests do not change it."""
    from real_run import trained

    return trained(tmp_path_factory.mktemp("real"))


@pytest.fixture
def alarm():
    """A test that waits for a pipe ends with an error, not never."""

    def ring(number, frame):
        raise TimeoutError("waited for a pipe")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
