"""What a server's refusal means, in a sentence that says what to do. Never holds the key."""

from __future__ import annotations

import httpx2
import openai

_LONGEST = 200


def explained(error: Exception, url: str, key: str | None, *, begun: bool) -> str:
    """`begun`: whether text had come already."""
    if isinstance(error, openai.APITimeoutError):
        return f"{url} did not answer in time. Is the server busy, or still loading the model?"
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return f"{url} refused the key. Put the right one into CAIRN_WRITER_KEY or CAIRN_WRITER_KEY_FILE."
    if isinstance(error, openai.NotFoundError):
        return f"{url} does not know this address or model. {_said(error, key)}"
    if isinstance(error, openai.RateLimitError):
        return f"{url} takes no more requests at the moment (429). Ask again later."
    if isinstance(error, openai.InternalServerError):
        return f"{url} failed ({error.status_code}). {_said(error, key)}"
    if isinstance(error, openai.APIStatusError):
        return f"{url} refused the request ({error.status_code}). {_said(error, key)}"
    if isinstance(error, openai.APIConnectionError | OSError | httpx2.TransportError):
        return "it broke off in the middle. Ask again." if begun else f"{url} cannot be reached. Is the server running?"
    if isinstance(error, openai.APIError):
        return f"{url} stopped with an error. {_said(error, key)}"
    return f"{url} sent something that is not an answer. Is it an OpenAI-compatible server whose address ends in /v1?"


def _said(error: openai.APIError, key: str | None) -> str:
    """The server's own words, on one line."""
    body = error.body
    said = body.get("message") if isinstance(body, dict) else None
    words = " ".join(str(said or error.message).split())
    if key:
        words = words.replace(key, "…")
    return f"It said: {words[:_LONGEST]}"
