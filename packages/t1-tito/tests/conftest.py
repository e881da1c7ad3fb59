"""Hypothesis settings for a run of this folder alone; a profile loaded above it wins."""

from hypothesis import settings

if settings().deadline is not None:
    settings.register_profile("alone", max_examples=40, deadline=None)
    settings.load_profile("alone")
