"""Hypothesis settings for a run of this folder alone; a profile loaded above it wins.

Without the extra `torch`, the tests of what it brings are not collected.
"""

from importlib.util import find_spec

from hypothesis import settings

if settings().deadline is not None:
    settings.register_profile("alone", max_examples=40, deadline=None)
    settings.load_profile("alone")

collect_ignore = [] if find_spec("torch") else ["test_torch.py"]
