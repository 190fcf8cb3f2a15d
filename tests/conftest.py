"""Settings that all tests share."""

from hypothesis import HealthCheck, settings

# Timing of single examples says nothing on a busy machine.
settings.register_profile("higsfa", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("higsfa")
