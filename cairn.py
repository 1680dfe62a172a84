"""Cairn in Python: read documents once, ask questions of them, see what the answers rest on.

    >>> import cairn
    >>> library = cairn.open("~/papers")                        # made if new
    >>> library.add("reports/", "contract.pdf")                 # what is stored already costs nothing
    >>> print(library.ask("When was the dam raised?").text)
    >>> for passage in library.search("spillway maintenance", k=3):
    ...     print(passage.title, passage.place, passage.text)

Everything else that a library can do is on `Library.library` (`retrieval.library.Library`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from app.cli.ingest import files_below
from app.settings import load_settings
from retrieval.errors import CairnError, ExtractError, InvalidRequest, NotFound
from retrieval.types.answers import Answer, AnswerToken, Passage
from retrieval.types.records import Document, Scope

if TYPE_CHECKING:
    import retrieval.library
    from retrieval.documents import Documents

__all__ = [
    "Answer",
    "AnswerToken",
    "CairnError",
    "Document",
    "ExtractError",
    "InvalidRequest",
    "Library",
    "NotFound",
    "Passage",
    "Scope",
    "open",
]


def open(home: str | Path | None = None, **settings: Any) -> Library:
    """The library in the folder `home` (default: CAIRN_HOME), made if new. `settings`: as in docs/settings.md, without
    CAIRN_ and in small letters: `model`, `writer`, `kv_dtype`. Raises `app.settings.SettingsError`, and
    `InvalidRequest` for an empty path."""
    from app.assembly import open_library  # the model's libraries take seconds to import

    given = {} if home is None else {"home": _named(home)}
    return Library(open_library(load_settings(**given, **settings)))


class Library:
    """Documents that were read once by a landmark model, and questions of them. Close it, or use it in `with`."""

    def __init__(self, library: retrieval.library.Library):
        self.library = library

    def add(self, *paths: str | Path, collection: str | None = None) -> list[Document]:
        """Read files, and all files in folders. Returns their documents, in order. Raises
        `ExtractError` for the first that cannot be read; those before it are stored."""
        added = []
        for path, name in files_below([_named(path) for path in paths]):
            job = self.library.documents.submit(path, source=name, collection=collection)
            if job.active:
                job = self.library.jobs.run(job.id)
            if job.state != "done":
                raise ExtractError(f"{name} was not read: {job.error or job.state}")
            added.append(self.library.documents.get(job.document_id))
        return added

    def ask(self, question: str, *, k: int = 8, within: Scope | None = None) -> Answer:
        """The answer with its evidence: the passages, their pages and boxes, who chose the words. Raises
        `InvalidRequest` for what is no question."""
        *_, answer = self.library.ask(question, k=k, within=within)
        assert isinstance(answer, Answer), "a question ends with its answer"
        return answer

    def stream(self, question: str, *, k: int = 8, within: Scope | None = None) -> Iterator[Any]:
        """The tokens of the answer as they come, then the `Answer`."""
        return self.library.ask(question, k=k, within=within)

    def search(self, query: str, k: int = 8, *, within: Scope | None = None) -> list[Passage]:
        """The best passages, best first. Raises `InvalidRequest`."""
        return self.library.search(query, k, within=within)

    @property
    def documents(self) -> Documents:
        """What was read: `documents.list(search="dam")`, `documents.get(id)`, `documents.delete([id])`."""
        return self.library.documents

    def close(self) -> None:
        self.library.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _named(path: str | Path) -> Path:
    """Raises `InvalidRequest` for an empty path, which would mean the current folder."""
    if not str(path):
        raise InvalidRequest("The path is empty. Name a file or a folder; '.' is the current folder.")
    return Path(os.path.expanduser(path))


def __getattr__(name: str) -> Any:
    if name == "Memory":
        warnings.warn("cairn.Memory is called cairn.Library now", DeprecationWarning, stacklevel=2)
        return Library
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
