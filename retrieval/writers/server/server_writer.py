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
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urlsplit

from retrieval.bounded_http import PLAIN, at_most
from retrieval.errors import WriterError
from retrieval.writers.prompt import messages
from retrieval.writers.protocol import Cancelled, Finish, WriterKind, WriterRequest, WriterToken, Written
from retrieval.writers.server.model_size import weights_in_name
from retrieval.writers.server.only_model import OnlyModel
from retrieval.writers.server.thinking import VisibleText

if TYPE_CHECKING:
    from openai import OpenAI

RETRIES = 2
MOST_BYTES = 16_000_000
"""Of one answer: some hundred bytes for each of its tokens; a line without an end is no answer."""
CONNECT_SECONDS = 10.0
_POLL_SECONDS = 0.05
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
            raise WriterError(str(host), "a key does not belong into the address. Put it into CAIRN_WRITER_KEY.")
        if not host:
            raise WriterError(
                address, "this is no address. Expected is something like http://localhost:11434/v1#model."
            )
        self._host, self._key, self._timeout_seconds = host, key, timeout_seconds
        self._lock = threading.Lock()
        self._client_made: OpenAI | None = None
        self._only_model = OnlyModel(self._url, key=key, local=not self.leaves_machine)

    @property
    def name(self) -> str:
        """The model that the address names, else the only one of the server, else where the server is."""
        return _without_folder(self._model or self._only_model.name()) or f"the model at {self._host}"

    @property
    def kind(self) -> WriterKind:
        return "server"

    @property
    def leaves_machine(self) -> bool:
        try:
            return not ipaddress.ip_address(self._host).is_loopback
        except ValueError:
            return self._host != "localhost"

    @property
    def weights(self) -> int | None:
        """As in `Writer`: what the model's name says, as names of published models do."""
        return weights_in_name(self.name)

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
        except _failures() as error:
            from retrieval.writers.server.server_errors import explained

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
        return Written(_finish(finish))

    def _pieces(self, request: WriterRequest) -> Iterator[_Piece]:
        """Runs in the background thread."""
        client, options = self._client(), request.options
        wanted: dict[str, Any] = {"temperature": options.temperature, "max_tokens": options.max_tokens}
        if options.temperature > 0:
            wanted["seed"] = options.seed
        said: Any = messages(request)  # as the client types it, a dictionary of its own for each role
        stream: Any = client.chat.completions.create(
            model=self._chosen_model(client), messages=said, stream=True, **wanted
        )
        with stream:
            for number, chunk in enumerate(stream):
                piece = _piece_of(chunk)
                yield piece
                if piece.finish:
                    return
                if number >= options.max_tokens + _MORE_PIECES:
                    yield _Piece(finish="length")
                    return

    def _client(self) -> OpenAI:
        with self._lock:
            if self._client_made is None:
                self._client_made = _client_for(
                    self._url, self._key, self._timeout_seconds, local=not self.leaves_machine
                )
            return self._client_made

    def _chosen_model(self, client: OpenAI) -> str:
        """The one that the address names, else the only one there is."""
        if not self._model:
            names = [str(model.id) for model in client.models.list().data]
            if len(names) != 1:
                listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
                example = f"{self._url}#{(names or ['model'])[0]}"
                raise WriterError(self._host, f"it has {len(names)} models ({listed}). Name one: {example}")
            self._model = names[0]
        return self._model


def _without_folder(model: str) -> str:
    """llama.cpp and vLLM call a model by the path that they loaded it from, which is nothing to show to readers."""
    path = model.replace("\\", "/")
    return path.rsplit("/", 1)[-1] if path.startswith("/") or path.lower().endswith(".gguf") else model


def _client_for(url: str, key: str | None, timeout_seconds: float, *, local: bool) -> OpenAI:
    from openai import DefaultHttpxClient, OpenAI, Timeout  # takes a second

    # Silence is measured where the pieces are read; the client's own limit only ends a thread that nobody waits for.
    timeout = Timeout(2 * timeout_seconds, connect=CONNECT_SECONDS)
    # A proxy of the environment is for other machines.
    http = DefaultHttpxClient(
        follow_redirects=False, trust_env=not local, timeout=timeout, headers=PLAIN, event_hooks=at_most(MOST_BYTES)
    )
    client = OpenAI(base_url=url, api_key=key or "none", timeout=timeout, max_retries=RETRIES, http_client=http)
    client.organization = client.project = None  # taken from OPENAI_* variables, which are not our settings
    return client


def _failures() -> tuple[type[Exception], ...]:
    from httpx2 import HTTPError  # of a server that hangs up amid an answer; the client lets it through
    from openai import OpenAIError

    return OSError, ValueError, OpenAIError, HTTPError


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


def _finish(reason: str) -> Finish:
    return "length" if reason == "length" else "stop"


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
