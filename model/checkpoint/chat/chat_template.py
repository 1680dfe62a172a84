"""A checkpoint's chat template, cut where passages and question are put in.

Templates are programs of the checkpoint's author. What they print around a message must not depend on the message or on
the day: stored keys are valid behind exactly one beginning.
"""

from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from model.errors import UnsupportedBackbone

_PLACE = "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}cairn\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}"
# The date that Meta's templates print where none is given; a running date would make stored keys useless every day.
_DATE = "26 Jul 2024"
# Templates of others ask for it by a function of the renderer, which only the template itself can replace.
_STILL = "{%- macro strftime_now(format) -%}" + _DATE + "{%- endmacro -%}"


@dataclass(frozen=True)
class ChatFrame:
    """What stands before and behind the user's message; begins with the begin-of-text token if the template has one."""

    before: str
    after: str


def chat_frame(tokenizer: Any, preamble: str) -> ChatFrame:
    """The frame of one user message behind `preamble` as the system's message, or before the user's own where the
    template takes no system message. Thinking is switched off where the template can.

    Raises `UnsupportedBackbone` for a checkpoint without a template, or whose template changes messages.
    """
    if not tokenizer.chat_template:
        raise UnsupportedBackbone(
            f"{tokenizer.name_or_path} has no chat template: a writer must be an instruct or chat checkpoint."
        )
    user = {"role": "user", "content": _PLACE}
    try:
        text = _rendered(tokenizer, [{"role": "system", "content": preamble}, user])
    except TemplateError:
        text = ""
    if preamble not in text:
        text = _rendered(tokenizer, [{"role": "user", "content": f"{preamble}\n\n{_PLACE}"}])
    before, found, after = text.partition(_PLACE)
    if not found or _PLACE in after:
        raise UnsupportedBackbone(
            f"the chat template of {tokenizer.name_or_path} does not print the user's message once as it is; "
            "choose another checkpoint."
        )
    return ChatFrame(before, after)


def _rendered(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    text: str = tokenizer.apply_chat_template(
        messages,
        chat_template=_STILL + tokenizer.get_chat_template(),
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
        date_string=_DATE,
    )
    return text
