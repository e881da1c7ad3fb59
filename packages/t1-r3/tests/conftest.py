"""Without the extra `torch`, the tests of what it brings are not collected."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["test_torch.py"]
