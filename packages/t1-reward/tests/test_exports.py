import t1_reward
import t1_reward.synthesis


def public_names(module):
    modules = type(module)
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, modules)
    }


def test_the_public_names_are_exactly_those_exported():
    for module in (t1_reward, t1_reward.synthesis):
        assert public_names(module) == set(module.__all__)


def test_the_exported_names_are_sorted():
    # constants first, then classes, then functions, as ruff sorts them
    for module in (t1_reward, t1_reward.synthesis):
        kinds = [0 if n.isupper() else 1 if n[0].isupper() else 2 for n in module.__all__]
        assert list(zip(kinds, module.__all__, strict=True)) == sorted(
            zip(kinds, module.__all__, strict=True)
        )


def test_every_error_refines_a_built_in():
    for name in t1_reward.__all__:
        value = getattr(t1_reward, name)
        if isinstance(value, type) and issubclass(value, t1_reward.RewardError):
            assert value is t1_reward.RewardError or issubclass(value, ValueError)
