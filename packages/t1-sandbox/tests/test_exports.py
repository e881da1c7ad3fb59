"""The public surface is `__all__`, complete and sorted."""

import types

import t1_sandbox


def test_all_is_sorted_and_is_what_is_public():
    public = {
        name
        for name, value in vars(t1_sandbox).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert set(t1_sandbox.__all__) == public
    by_kind = sorted(
        t1_sandbox.__all__, key=lambda name: (not name.isupper(), name.islower(), name)
    )
    assert t1_sandbox.__all__ == by_kind


def test_every_error_is_a_sandbox_error_and_a_built_in_one():
    for name in t1_sandbox.__all__:
        value = getattr(t1_sandbox, name)
        if isinstance(value, type) and issubclass(value, Exception) and name != "SandboxError":
            assert issubclass(value, t1_sandbox.SandboxError)
            assert len(value.__bases__) == 2
