"""The verifier script of a task: one bash process, one TAP line per assertion.

The script runs in the finished work directory. It writes its report to the descriptor named by
$T1_REPORT_FD; where that is unset it writes /logs/verifier/report.tap. Whenever /logs/verifier is
writable it writes 1 or 0 to reward.txt there as well, so the task works unchanged under Harbor. The
report is written at the end and at once: it is complete or absent.
"""

import shlex
from collections.abc import Mapping

from t1_reward.synthesis.condition import SHELL_FUNCTIONS, Condition

__all__ = ["render_solution", "render_test"]

_HEAD = r"""#!/bin/bash
# Checks the work directory, which is the current one; changes nothing in it.
export LC_ALL=C PATH=/usr/bin:/bin
tap= number=0 failed=0 modes=
verdict() {  # ID: reports how the command before it ended
  if (($? == 0)); then tap+="ok $((++number)) - $1"$'\n'; else
    tap+="not ok $((++number)) - $1"$'\n' failed=1
  fi
}"""

_TAIL = r"""tap="1..$number"$'\n'$tap
logs=/logs/verifier
if [[ -n ${T1_REPORT_FD-} ]]; then
  printf %s "$tap" >&"$T1_REPORT_FD"
elif [[ -w $logs ]]; then
  printf %s "$tap" >"$logs/report.tap"
fi
[[ -w $logs ]] && echo "$((1 - failed))" >"$logs/reward.txt"
exit "$failed"
"""


def render_test(conditions: Mapping[str, Condition]) -> str:
    """Returns the text of tests/test.sh.

    Args:
        conditions: assertion id to condition, in the order of the report.
    """
    lines = [_HEAD, SHELL_FUNCTIONS]
    paths = sorted({path for condition in conditions.values() for path in condition.modes_of})
    if paths:
        # one process for all modes; bash itself cannot tell them
        lines.append(f"modes=$(stat -c %n=%a -- {shlex.join(paths)} 2>/dev/null)")
    lines += [
        f"{condition.shell}; verdict {shlex.quote(name)}" for name, condition in conditions.items()
    ]
    return "\n".join(lines) + "\n" + _TAIL


def render_solution(commands: list[str]) -> str:
    """Returns the text of solution/solve.sh, to be run in the work directory."""
    return "\n".join(["#!/bin/bash", "set -e", *commands]) + "\n"
