"""Conditions on a finished work directory, as lines of the verifier's shell script.

A `Condition` is shell text that succeeds or fails, plus the paths whose modes it needs. The shell
functions it calls are defined here too (`SHELL_FUNCTIONS`), next to the Python functions that write
the calls. They are safe on hostile trees: every path is fixed and quoted; only regular files
that are reached without a symbolic link are opened, so neither a FIFO nor /dev/zero can be; reads stop
after a fixed number of bytes; no program of the tree (hooks, aliases, git's configuration) is run.

Conditions know nothing of instructions or of how their outcome is reported.
"""

import shlex
from dataclasses import dataclass

__all__ = [
    "SHELL_FUNCTIONS",
    "Condition",
    "absent",
    "archive_holds",
    "branch_at",
    "first_line",
    "has_line",
    "holds",
    "is_directory",
    "is_file",
    "is_symlink",
    "last_line",
    "mode_is",
    "on_branch",
    "resolves_to",
]

# `read` returns 0 only if it met a NUL byte or filled its quota: more than the text looked for.
# $modes is the output of one `stat` for all files whose mode matters.
SHELL_FUNCTIONS = r"""
plain() {  # PATH: no part of it is a symbolic link
  local path=$1
  while [[ $path == */* ]]; do
    [[ -L $path ]] && return 1
    path=${path%/*}
  done
  [[ ! -L $path ]]
}
is_file() { [[ -f $1 && -r $1 ]] && plain "$1"; }
is_directory() { [[ -d $1 ]] && plain "$1"; }
is_symlink() { [[ -L $1 ]]; }
resolves_to() { [[ -L $1 && $1 -ef $2 ]] && plain "$2"; }
absent() { [[ ! -e $1 && ! -L $1 ]]; }
holds() {  # FILE TEXT: nothing but TEXT, with or without a final newline
  local found=
  is_file "$1" || return 1
  IFS= read -r -d '' -n "$((${#2} + 2))" found <"$1" && return 1
  [[ ${found%$'\n'} == "$2" ]]
}
text_of() {  # FILE: its text in REPLY; fails on more than 4095 bytes
  REPLY=
  is_file "$1" || return 1
  IFS= read -r -d '' -n 4096 REPLY <"$1" && return 1
  REPLY=${REPLY%$'\n'}
}
has_line() { text_of "$1" && [[ $'\n'$REPLY$'\n' == *$'\n'"$2"$'\n'* ]]; }
first_line() { text_of "$1" && [[ ${REPLY%%$'\n'*} == "$2" ]]; }
last_line() { text_of "$1" && [[ ${REPLY##*$'\n'} == "$2" ]]; }
mode_is() { is_file "$1" && [[ $'\n'$modes$'\n' == *$'\n'"$1=$2"$'\n'* ]]; }
on_branch() { holds "$1/.git/HEAD" "ref: refs/heads/$2"; }
branch_at() {  # REPOSITORY BRANCH COMMIT
  local loose=$1/.git/refs/heads/$2
  # a branch's own file hides its packed line, which may be stale
  if absent "$loose"; then has_line "$1/.git/packed-refs" "$3 refs/heads/$2"; else
    holds "$loose" "$3"
  fi
}
archive_holds() {  # ARCHIVE MEMBER TEXT: that member alone, whatever else the archive holds
  local found=
  is_file "$1" || return 1
  # from a pipe, tar neither seeks nor decompresses; a sparse member can still be endless
  IFS= read -r -d '' -n "$((${#3} + 2))" found < <(
    head -c 65536 -- "$1" | tar -xO --no-recursion -f - -- "$2" "./$2" 2>/dev/null
  ) && return 1
  [[ ${found%$'\n'} == "$3" ]]
}
""".strip()


@dataclass(frozen=True)
class Condition:
    """Shell text that succeeds when the condition is met.

    Attributes:
        shell: one `&&` list of calls.
        modes_of: paths whose modes must be in `$modes` before.
    """

    shell: str
    modes_of: tuple[str, ...] = ()

    def __and__(self, other: "Condition") -> "Condition":
        return Condition(f"{self.shell} && {other.shell}", self.modes_of + other.modes_of)


def _call(function: str, *arguments: str) -> Condition:
    return Condition(shlex.join((function, *arguments)))


def is_file(path: str) -> Condition:
    """Returns: path is a readable regular file."""
    return _call("is_file", path)


def is_directory(path: str) -> Condition:
    """Returns: path is a directory, not a link to one."""
    return _call("is_directory", path)


def is_symlink(path: str) -> Condition:
    """Returns: path is a symbolic link, dangling or not."""
    return _call("is_symlink", path)


def resolves_to(link: str, target: str) -> Condition:
    """Returns: link is a symbolic link that leads to target, however it is written."""
    return _call("resolves_to", link, target)


def absent(path: str) -> Condition:
    """Returns: nothing is at path, not even a dangling link."""
    return _call("absent", path)


def holds(path: str, text: str) -> Condition:
    """Returns: the file holds exactly the text; a final newline is optional."""
    return _call("holds", path, text.removesuffix("\n"))


def has_line(path: str, line: str) -> Condition:
    """Returns: one of the file's lines is the line."""
    return _call("has_line", path, line)


def first_line(path: str, line: str) -> Condition:
    """Returns: the file begins with the line."""
    return _call("first_line", path, line)


def last_line(path: str, line: str) -> Condition:
    """Returns: the file ends with the line."""
    return _call("last_line", path, line)


def mode_is(path: str, mode: str) -> Condition:
    """Returns: path is a regular file and its permission bits are mode (octal digits)."""
    return Condition(_call("mode_is", path, mode).shell, (path,))


def on_branch(repository: str, branch: str) -> Condition:
    """Returns: the branch is the one checked out."""
    return _call("on_branch", repository, branch)


def branch_at(repository: str, branch: str, commit: str) -> Condition:
    """Returns: the branch exists and points at the commit."""
    return _call("branch_at", repository, branch, commit)


def archive_holds(archive: str, member: str, text: str) -> Condition:
    """Returns: the tar archive's member of that name holds exactly the text."""
    return _call("archive_holds", archive, member, text.removesuffix("\n"))
