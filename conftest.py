"""Hypothesis profiles: `fast` by default, `thorough` with T1_HYPOTHESIS=thorough."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("fast", max_examples=40, deadline=None)
settings.register_profile(
    "thorough", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("T1_HYPOTHESIS", "fast"))
