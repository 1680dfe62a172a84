"""Errors of the retrieval package: every message is complete and may be shown to users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

NOT_ENOUGH_MEMORY = "There was not enough memory for this. Close other programs, or free the GPU, then try again."
# What torch and C++ say in a RuntimeError.
_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc", "can't start new thread")
# Python's and NumPy's words for C code that failed and did not say why: an allocation whose result it did not look at.
_SAID_NOTHING = ("without exception set", "without setting an exception")


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether memory of the machine or of the GPU was too little."""
    words = {RuntimeError: _OUT_OF_MEMORY, SystemError: _SAID_NOTHING}
    return isinstance(error, MemoryError) or any(
        isinstance(error, kind) and any(each in str(error) for each in said) for kind, said in words.items()
    )


class CairnError(Exception):
    """An error that the user can act upon. `str(error)` says what went wrong, with which thing, and what to do next."""


class ExtractError(CairnError):
    """A file could not be read as a document (damaged, locked, empty, too large, hostile)."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


class UnknownKind(ExtractError):
    """Files of this kind cannot be read. `short`: the reason without the list of kinds that can."""

    def __init__(self, short: str, instead: str = ""):
        super().__init__(f"{short} {instead}".rstrip())
        self.short = short


class NothingToRead(ExtractError):
    """No page of a file has text, and `pages` (from 0) are pictures in which text may be recognised."""

    def __init__(self, reason: str, pages: Sequence[int]):
        super().__init__(reason)
        self.pages = tuple(pages)


class FileChanged(CairnError):
    """A file is not as it was when reading it began."""

    def __init__(self, name: str):
        super().__init__(f"{name} changed while it was read. Add it again once it is complete.")


class InvalidRequest(CairnError, ValueError):
    """An argument that cannot be served: empty question, k below 1, unknown sort order."""


_LISTED_BY = {"user": "cairn user list"} | {kind: f"cairn list --{kind}s" for kind in ("collection", "job", "answer")}


class NotFound(CairnError, LookupError):
    """No such document, collection, job, answer or page."""

    def __init__(self, kind: str, key: object, where: str = "this library", hint: str = ""):
        hint = hint or f"`{_LISTED_BY.get(kind, 'cairn list')}` shows what there is."
        super().__init__(f"There is no {kind} {key!r} in {where}. {hint}")


class PermissionDenied(CairnError):
    """A user tried to change something that they may only see."""

    def __init__(self, kind: str):
        super().__init__(f"This {kind} is not yours, so you cannot change it. Its owner can.")


class MemoryMismatch(CairnError):
    """The stored memory was made by another model, tokenizer or storage setting."""

    def __init__(self, fields: Sequence[str], detail: str = ""):
        names = ", ".join(fields)
        super().__init__(
            f"The stored memory does not belong to this model: {names} "
            f"{'differs' if len(fields) == 1 else 'differ'}.{' ' + detail if detail else ''} "
            "Open the library with the model that made it, or read every document again with this one: "
            "`cairn repair --reingest` (with `--later` in the background, while a server answers)."
        )
        self.fields = tuple(fields)


class ForeignBundle(CairnError):
    """A bundle whose memory was made by another model."""

    def __init__(self, name: str, fields: Sequence[str]):
        names = ", ".join(fields)
        super().__init__(
            f"The memory in {name} was made by another model: {names} {'differs' if len(fields) == 1 else 'differ'}. "
            "Nothing was changed. Use the model that made it (--model), or have this model read the originals that "
            "the file holds: --reingest."
        )


class NotEnoughSpace(CairnError):
    """The disk cannot hold the memory of a document, besides a reserve for the catalogue."""

    def __init__(self, source: str, needed_bytes: int, free_bytes: int, reserved_bytes: int):
        super().__init__(
            f"{source} needs about {_megabytes(needed_bytes)} on disk, and {_megabytes(reserved_bytes)} must stay free "
            f"for the catalogue; only {_megabytes(free_bytes)} are free. "
            "Free some space, delete documents, or choose another folder with --home."
        )


class DamagedMemory(CairnError):
    """Stored blocks failed their checksum; nothing that depends on them is shown."""

    def __init__(self, document: str, detail: str):
        super().__init__(
            f"The stored memory of {document} is damaged ({detail}), so no answer is given from it. "
            "`cairn verify` lists all damage, `cairn repair` reads the damaged documents again."
        )


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.0f} MB" if size_bytes >= 1e6 else "less than 1 MB"


class WriterError(CairnError):
    """The writer cannot be opened or did not answer. `writer`: its name; `reason`: what happened, what to do."""

    def __init__(self, writer: str, reason: str):
        super().__init__(f"The writer {writer} cannot be used: {reason}")


class DeletedMeanwhile(CairnError):
    """A document was deleted while an answer was made from it."""

    def __init__(self) -> None:
        super().__init__(
            "A document that this answer is based on was deleted in the meantime, so it was not saved. Ask again."
        )


class AccessChanged(CairnError):
    """A user may no longer read what they could read when they asked."""

    def __init__(self) -> None:
        super().__init__("What you may read changed while this was answered, so it was not finished. Ask again.")


class Cancelled(CairnError):
    """A job was cancelled by its owner."""


@contextmanager
def catalogue_errors() -> Iterator[None]:
    """Raise the catalogue's errors, and any ValueError, as errors of this package. Also a decorator."""
    # Imported here: programs that only handle these errors need not load storage.
    from storage.errors import NameTaken
    from storage.errors import NotFound as NoRow
    from storage.errors import PermissionDenied as NotOwned

    try:
        yield
    except NoRow as error:
        raise NotFound(error.kind, error.key) from error
    except NotOwned as error:
        raise PermissionDenied(error.kind) from error
    except NameTaken as error:
        raise InvalidRequest(str(error)) from error
    except InvalidRequest:
        raise
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
