"""Read configurations: preset, then TOML files left to right, then dotted command-line flags.

Tables merge and everything else is replaced. Every wrong key or value is one `ConfigError` line that
names file, key, what was expected and, for an unknown key, the nearest known one. Whether settings
contradict each other is judged once, when all sources are merged.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import tyro
from pydantic import BaseModel, ValidationError

from t1_trainer.config import Config
from t1_trainer.errors import ConfigError

__all__ = ["dump_config", "load_config", "load_resolved", "read_preset"]


def read_preset(name: str) -> dict[str, Any]:
    """The table of a preset shipped with the package.

    Raises:
        ConfigError: no such preset.
    """
    folder = resources.files("t1_trainer") / "presets"
    known = sorted(
        p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith("toml")
    )
    if name not in known:
        raise ConfigError(f"preset {name!r} is unknown{_nearest(name, known)}; known: {known}")
    return tomllib.loads((folder / f"{name}.toml").read_text())


def load_config(
    files: Sequence[Path], preset: str = "mini", arguments: Sequence[str] = ()
) -> Config:
    """Preset, then files, then dotted command-line flags; the flags print their own help.

    Raises:
        ConfigError: a file cannot be read, a key or value is wrong, or settings contradict each
            other once all sources are merged.
        SystemExit: `--help`, or an unknown or malformed flag (exit code 2).
    """
    merged = read_preset(preset)
    config = _parsed(merged, f"preset {preset}")
    for file in files:
        merged = merge(merged, _read(file))
        # each file is checked as it comes, so that the message can name it
        config = _parsed(merged, str(file))
    if arguments:
        config = tyro.cli(Config, default=config, args=arguments, prog="t1 train")
    return _consistent(config, "configuration")


def load_resolved(file: Path) -> Config:
    """A complete configuration as `dump_config` wrote it; no preset below it.

    Raises:
        ConfigError: it cannot be read or holds a wrong key or value.
    """
    return _consistent(_parsed(_read(file), str(file)), str(file))


def _parsed(table: Mapping[str, Any], source: str) -> Config:
    """Build the model from a table; one line per wrong key or value, prefixed with `source`."""
    try:
        return Config.model_validate(dict(table))
    except ValidationError as error:
        lines = [
            _explain(source, detail["loc"], detail["type"], detail["msg"], detail.get("input"))
            for detail in error.errors()
        ]
        raise ConfigError("\n".join(lines)) from error


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` onto `base`: tables merge key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        inside = merged.get(key)
        if isinstance(value, Mapping) and isinstance(inside, Mapping):
            merged[key] = merge(inside, value)
        else:
            merged[key] = value
    return merged


def dump_config(config: Config) -> dict[str, Any]:
    """The resolved configuration as a TOML table: unset optional values are left out."""
    return config.model_dump(mode="json", exclude_none=True)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: is not TOML: {error}") from error


def _explain(
    source: str, loc: tuple[int | str, ...], kind: str, message: str, given: object
) -> str:
    dotted = ".".join(str(part) for part in loc)
    if kind == "extra_forbidden":
        return f"{source}: unknown key {dotted!r}{_nearest(str(loc[-1]), _keys_at(loc[:-1]))}"
    return f"{source}: {dotted} = {given!r}: {message}"


def _keys_at(loc: tuple[int | str, ...]) -> list[str]:
    model: type[BaseModel] = Config
    for part in loc:
        field = model.model_fields[str(part)].annotation
        if not (isinstance(field, type) and issubclass(field, BaseModel)):
            return []
        model = field
    return list(model.model_fields)


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known keys: {', '.join(known)}"


def _consistent(config: Config, source: str) -> Config:
    found = config.contradictions()
    if found:
        raise ConfigError("\n".join(f"{source}: {line}" for line in found))
    return config
