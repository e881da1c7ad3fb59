"""Template arguments that may change what becomes of history: known ones, and a template's own names.

A template reads variables that nothing says the type of. Those that stand in the condition of an `if`
or that it has a default for may be switches, and are tried as True and as False; what a renderer
supplies itself is left out.
"""

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from .chat_tokenizer import ChatTemplate

KNOWN_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"preserve_thinking": True},
    {"clear_thinking": False},
    {"truncate_history_thinking": False},
    {"drop_thinking": False},
    {"keep_all_reasoning": True},
    {"preserve_reasoning": True},
    {"keep_past_thinking": True},
    {"enable_thinking": True},
    {"enable_thinking": False},
    {"thinking": True},
)
"""Template arguments that are known to change what becomes of history."""

_SUPPLIED = frozenset(
    (
        *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message"),
        *("tokenize", "chat_template", "conversation", "raise_exception", "strftime_now"),
    )
)
_ASKING_WHETHER_GIVEN = frozenset(("defined", "undefined", "default", "d"))
_TAGS_OF_TRANSFORMERS = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")


def candidate_arguments(template: ChatTemplate) -> Iterator[dict[str, Any]]:
    """Arguments to try on a template, one each; all the known ones where it does not show its source."""
    source = template.source
    own = _switches(template)
    for known in KNOWN_ARGUMENTS:
        (name,) = known
        if not source or re.search(rf"\b{name}\b", source):
            yield known
    for name in own:
        for value in (True, False):
            if {name: value} not in KNOWN_ARGUMENTS:
                yield {name: value}


def _switches(template: ChatTemplate) -> list[str]:
    """Names that the template lets its caller give, in alphabetical order."""
    source = getattr(template.tokenizer, "chat_template", None)
    if not isinstance(source, str) or find_spec("jinja2") is None:
        return []
    from jinja2 import Environment, TemplateSyntaxError, meta, nodes  # noqa: PLC0415 needs the extra

    try:
        # nothing is rendered, so there is nothing to escape
        tree = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(  # noqa: S701
            _TAGS_OF_TRANSFORMERS.sub("", source)
        )
    except TemplateSyntaxError:
        # it has tags that only its own renderer knows; the known arguments remain
        return []
    asked = {
        name.name
        for choice in tree.find_all((nodes.If, nodes.CondExpr))
        # wrapped, for a condition may be a bare name
        for name in nodes.Not(choice.test).find_all(nodes.Name)
    }
    own = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    optional = {
        use.node.name
        for use in tree.find_all((nodes.Test, nodes.Filter))
        if isinstance(use.node, nodes.Name) and use.name in _ASKING_WHETHER_GIVEN
    }
    # a name that the template sets itself is an argument where it asks whether that was given
    free = meta.find_undeclared_variables(tree) & ((asked - own) | optional)
    return sorted(name for name in free - _SUPPLIED if not name.endswith("_token"))
