"""A writer behind an OpenAI-compatible server: Ollama, vLLM, llama.cpp, LM Studio, a cloud.

- The request runs in a thread of its own, so that a server which stalls can be stopped and timed at any moment.
- Before the first token, refusals that may pass (429, 5xx) are tried again by the client; afterwards nothing is:
  text was shown already.
- The key goes into the Authorization header and nowhere else. Redirects are not followed: passages go to the address
  that was named, or nowhere.
"""

from __future__ import annotations

import ipaddress
import queue
import re
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urldefrag, urlsplit

import httpx2
import openai

from retrieval.bounded_http import PLAIN, at_most
from retrieval.errors import WriterError
from retrieval.types.writer import Cancelled, WriterKind, WriterRequest, WriterToken, Written
from retrieval.writers.prompt import messages

_SIZE = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,3})?)(m|b)(?![a-z0-9])", re.IGNORECASE)
_UNITS = {"m": 1_000_000, "b": 1_000_000_000}


def weights_in_name(name: str) -> int | None:
    """The number of weights that a model's name states; None where it states no size, or several, as those of mixtures
    have."""
    sizes = {round(float(number) * _UNITS[unit.lower()]) for number, unit in _SIZE.findall(name)}
    return sizes.pop() if len(sizes) == 1 else None


_PATIENCE_SECONDS = 1.0
_AGAIN_SECONDS = 30.0  # before a server that said nothing useful is asked once more


_MOST_LISTED_BYTES = 4_000_000


def model_names(url: str, *, key: str | None) -> list[str]:
    """Names of the models of the server at `url` (up to and with `/v1`). Raises `ValueError` if it does not answer at
    once."""
    headers = PLAIN | ({"Authorization": f"Bearer {key}"} if key else {})
    hooks, local = at_most(_MOST_LISTED_BYTES), _is_here(urlsplit(url).hostname or "")
    try:
        # A proxy of the environment is for other machines.
        with httpx2.Client(trust_env=not local, timeout=_PATIENCE_SECONDS, event_hooks=hooks) as client:
            listed: Any = client.get(f"{url.rstrip('/')}/models", headers=headers).raise_for_status().json()
        return [name for model in listed["data"] if isinstance(name := model["id"], str)]
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"The server at {urlsplit(url).hostname} does not name its models.") from error


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_LONGEST = 200


def explained(error: Exception, url: str, key: str | None, *, begun: bool) -> str:
    """Why the server at `url` gave no answer, in words for users. `begun`: whether text had come already."""
    if isinstance(error, openai.APITimeoutError):
        return f"{url} did not answer in time. Is the server busy, or still loading the model?"
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return f"{url} refused the key. Put the right one into CAIRN_WRITER_KEY or CAIRN_WRITER_KEY_FILE."
    if isinstance(error, openai.NotFoundError):
        return f"{url} does not know this address or model. {_server_message(error, key)}"
    if isinstance(error, openai.RateLimitError):
        return f"{url} takes no more requests at the moment (429). Ask again later."
    if isinstance(error, openai.InternalServerError):
        return f"{url} failed ({error.status_code}). {_server_message(error, key)}"
    if isinstance(error, openai.APIStatusError):
        return f"{url} refused the request ({error.status_code}). {_server_message(error, key)}"
    if isinstance(error, openai.APIConnectionError | OSError | httpx2.TransportError):
        return "it broke off in the middle. Ask again." if begun else f"{url} cannot be reached. Is the server running?"
    if isinstance(error, openai.APIError):
        return f"{url} stopped with an error. {_server_message(error, key)}"
    return f"{url} sent something that is not an answer. Is it an OpenAI-compatible server whose address ends in /v1?"


def _server_message(error: openai.APIError, key: str | None) -> str:
    """The server's own words, on one line."""
    body = error.body
    said = body.get("message") if isinstance(body, dict) else None
    words = " ".join(str(said or error.message).split())
    if key:
        words = words.replace(key, "…")
    return f"It said: {words[:_LONGEST]}"


OPENING, CLOSING = "<think>", "</think>"


class VisibleText:
    """Takes text piece by piece and gives what may be shown of it: all but a `<think>` part at the beginning."""

    def __init__(self) -> None:
        self._held, self._thinking, self._decided = "", False, False

    def feed(self, piece: str) -> str:
        """What became visible by this piece."""
        if self._decided:
            return piece
        self._held += piece
        if not self._thinking:
            begun = self._held.lstrip()
            if OPENING.startswith(begun[: len(OPENING)]) and len(begun) < len(OPENING):
                return ""
            self._thinking = begun.startswith(OPENING)
            if not self._thinking:
                return self._release(self._held)
        _, closed, after = self._held.partition(CLOSING)
        return self._release(after.lstrip()) if closed and after.strip() else ""

    def rest(self) -> str:
        """What is still held back at the end, unless it is part of the thinking."""
        return "" if self._thinking or self._decided else self._release(self._held)

    def _release(self, text: str) -> str:
        self._decided, self._held = True, ""
        return text


RETRIES = 2
MOST_BYTES = 16_000_000
"""Of one answer: some hundred bytes for each of its tokens; a line without an end is no answer."""
CONNECT_SECONDS = 10.0
_POLL_SECONDS = 0.05
# The last is of a server that hangs up amid an answer; the client lets it through.
_FAILURES = (OSError, ValueError, openai.OpenAIError, httpx2.HTTPError)
# Servers that ignore max_tokens are stopped here. A piece is hardly ever less than a token.
_MORE_PIECES = 64


@dataclass(frozen=True)
class _Piece:
    """`text`: what came, empty for anything else that the server sent; `finish`: its reason to end, if it gave one."""

    text: str = ""
    finish: str = ""


class ServerWriter:
    """`address`: up to and with `/v1`, then perhaps `#model`. `timeout_seconds`: longest silence of the server."""

    def __init__(self, address: str, *, key: str | None = None, timeout_seconds: float = 120.0):
        self._url, self._model = urldefrag(address)
        parts = urlsplit(self._url)
        host = parts.hostname
        if parts.username or parts.password:
            raise WriterError(str(host), "a key does not belong in the address. Put it in CAIRN_WRITER_KEY.")
        if not host:
            raise WriterError(address, "this is not an address. Use one like http://localhost:11434/v1#model.")
        self._host, self._key, self._timeout_seconds = host, key, timeout_seconds
        self._lock = threading.Lock()
        self._client_made: openai.OpenAI | None = None
        self._asking = threading.Lock()
        self._only_model, self._asked_at = "", float("-inf")

    @property
    def name(self) -> str:
        """The model that the address names, else the only one of the server, else where the server is."""
        return _without_folder(self._model or self._listed_model()) or f"the model at {self._host}"

    @property
    def kind(self) -> WriterKind:
        return "server"

    @property
    def leaves_machine(self) -> bool:
        return not _is_here(self._host)

    @property
    def weights(self) -> int | None:
        """As in `Writer`: what the model's name says, as names of published models do."""
        return weights_in_name(self.name)

    def _listed_model(self) -> str:
        """The only model of the server; empty where it has several, or does not say at once."""
        with self._asking:
            if not self._only_model and time.monotonic() - self._asked_at >= _AGAIN_SECONDS:
                with suppress(ValueError):
                    names = model_names(self._url, key=self._key)
                    self._only_model = names[0] if len(names) == 1 else ""
                self._asked_at = time.monotonic()
            return self._only_model

    def write(self, request: WriterRequest, cancelled: Cancelled) -> Generator[WriterToken, None, Written]:
        """As in `Writer`."""
        visible, wrote, finish = VisibleText(), False, ""
        pieces = _InBackground(self._pieces(request), self._timeout_seconds)
        try:
            for piece in pieces.until(cancelled):
                finish = finish or piece.finish
                if text := visible.feed(piece.text):
                    wrote = True
                    yield WriterToken(text)
        except TimeoutError:
            raise WriterError(
                self.name,
                f"it sent nothing for {self._timeout_seconds:.0f} seconds. CAIRN_WRITER_TIMEOUT sets it.",
            ) from None
        except _FAILURES as error:
            raise WriterError(self.name, explained(error, self._url, self._key, begun=wrote)) from error
        finally:
            pieces.stop()
        if pieces.cancelled:
            return Written("cancelled")
        if rest := visible.rest():
            wrote = True
            yield WriterToken(rest)
        if not finish:
            raise WriterError(self.name, "it broke off in the middle. Ask again.")
        if not wrote:
            raise WriterError(
                self.name,
                "it wrote nothing. A reasoning model may have spent the length of the answer on thinking: "
                "switch its thinking off, or allow longer answers.",
            )
        return Written("length" if finish == "length" else "stop")

    def _pieces(self, request: WriterRequest) -> Iterator[_Piece]:
        """Runs in the background thread."""
        client = self._client()
        said: Any = messages(request)  # as the client types it, a dictionary of its own for each role
        stream: Any = client.chat.completions.create(
            model=self._chosen_model(client),
            messages=said,
            stream=True,
            temperature=0.0,
            max_tokens=request.max_tokens,
        )
        with stream:
            for number, chunk in enumerate(stream):
                piece = _piece_of(chunk)
                yield piece
                if piece.finish:
                    return
                if number >= request.max_tokens + _MORE_PIECES:
                    yield _Piece(finish="length")
                    return

    def _client(self) -> openai.OpenAI:
        with self._lock:
            if self._client_made is None:
                self._client_made = _client_for(
                    self._url, self._key, self._timeout_seconds, local=not self.leaves_machine
                )
            return self._client_made

    def _chosen_model(self, client: openai.OpenAI) -> str:
        """The one that the address names, else the only one there is."""
        if not self._model:
            names = [str(model.id) for model in client.models.list().data or ()]  # Ollama without models sends null
            if len(names) != 1:
                listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
                example = f"{self._url}#{(names or ['model'])[0]}"
                raise WriterError(self._host, f"it has {len(names)} models ({listed}). Name one: {example}")
            self._model = names[0]
        return self._model


def _without_folder(model: str) -> str:
    """llama.cpp and vLLM name a model by the path that they loaded it from, which is not shown to users."""
    path = model.replace("\\", "/")
    return path.rsplit("/", 1)[-1] if path.startswith("/") or path.lower().endswith(".gguf") else model


def _client_for(url: str, key: str | None, timeout_seconds: float, *, local: bool) -> openai.OpenAI:
    # Silence is measured where the pieces are read; the client's own limit only ends a thread that nobody waits for.
    timeout = openai.Timeout(2 * timeout_seconds, connect=CONNECT_SECONDS)
    # A proxy of the environment is for other machines.
    http = openai.DefaultHttpxClient(
        follow_redirects=False, trust_env=not local, timeout=timeout, headers=PLAIN, event_hooks=at_most(MOST_BYTES)
    )
    client = openai.OpenAI(base_url=url, api_key=key or "none", timeout=timeout, max_retries=RETRIES, http_client=http)
    client.organization = client.project = None  # taken from OPENAI_* variables, which are not our settings
    return client


def _piece_of(chunk: Any) -> _Piece:
    """The client does not check what servers send. Raises ValueError for what is no answer."""
    choices: Any = getattr(chunk, "choices", None)
    if choices == []:  # usage figures, the signs of life of some servers
        return _Piece()
    try:
        choice = choices[0]
        text, finish = choice.delta.content, choice.finish_reason
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError("a chunk without choices") from error
    if not isinstance(text, str | None) or not isinstance(finish, str | None):
        raise ValueError("a chunk whose content is not text")
    return _Piece(text or "", finish or "")


class _InBackground:
    """Runs an iterator in a thread. Errors in it are raised to whoever reads it here."""

    def __init__(self, pieces: Iterator[_Piece], timeout_seconds: float):
        self._pieces, self._timeout_seconds = pieces, timeout_seconds
        self._arrived: queue.Queue[_Piece | Exception | None] = queue.Queue()
        self._stopped = threading.Event()
        self.cancelled = False
        threading.Thread(target=self._run, name="cairn-writer", daemon=True).start()

    def stop(self) -> None:
        """The thread ends with the next piece, or with the client's own time limit."""
        self._stopped.set()

    def until(self, cancelled: Cancelled) -> Iterator[_Piece]:
        """The pieces as they come; `cancelled` is set if it ended early. Raises TimeoutError after a long silence."""
        heard = time.monotonic()
        while True:
            if cancelled():
                self.cancelled = True
                return
            try:
                item = self._arrived.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if time.monotonic() - heard > self._timeout_seconds:
                    raise TimeoutError from None
                continue
            heard = time.monotonic()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item

    def _run(self) -> None:
        try:
            for piece in self._pieces:
                self._arrived.put(piece)
                if self._stopped.is_set():
                    break
        except Exception as error:  # the thread's last line: it is raised where the pieces are read
            self._arrived.put(error)
        finally:
            self._arrived.put(None)
