"""Real chat templates on a small vocabulary: TRL's templates, with the tiny tokenizer behind them."""

import re
from functools import cache

from real_tokenizers import trl_template, trl_template_names

from t1_tito.byte_tables import token_bytes_of
from t1_tito.tiny import tiny_tokenizer

# what a template spells in these forms is a control token of its model
# DeepSeek's control tokens are written with full-width bars
_BAR = "[|\uff5c]"
_CONTROL = re.compile(
    f"<{_BAR}[^|\uff5c<>{{}}'\\s]{{1,40}}{_BAR}>"
    r"|</?[a-z_]{3,16}>|\[gMASK\]|<\|[a-z_]+>|<[a-z_]+\|>|\[/?[A-Z_]{4,16}\]"
)
_CHAT_MARKUP = {"<s>", "</s>", "<bos>"}

# they want content as a list of parts, or a vision model's placeholders
MULTIMODAL = {
    "idefics3",
    "idefics3_training",
    "llava_next",
    "llava_next_training",
    "smolvlm",
    "smolvlm_training",
}


def text_templates():
    """Names of the templates that take content as text."""
    return [name for name in trl_template_names() if name not in MULTIMODAL]


@cache
def templated(name):
    """A transformers tokenizer of the tiny vocabulary with that template, and its byte table."""
    # takes seconds, which tests that need no transformers do not pay
    from tokenizers import AddedToken, Tokenizer  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    template = trl_template(name)
    backend = Tokenizer.from_str(tiny_tokenizer().to_json())
    control = sorted(set(_CONTROL.findall(template)) | _CHAT_MARKUP)
    backend.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in control]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<bos>",
        eos_token="</s>",
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )
    return tokenizer, token_bytes_of(tokenizer)
