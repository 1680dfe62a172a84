"""The memory as a LangChain retriever.

    retriever = LandmarkRetriever(library=library, k=4)                   # in this process
    retriever = RemoteLandmarkRetriever(url="http://127.0.0.1:7860", token="...", k=4)     # a served library
    documents = retriever.invoke("When was it built?", k=3, filter={"collection_id": "..."})

Both give exactly `k` documents, best first, unless the memory holds fewer blocks or `score_threshold` is set.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx2
from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from retrieval.errors import CairnError, InvalidRequest
from retrieval.library import Library
from retrieval.types.answers import Passage
from retrieval.types.records import Scope
from storage.names import unknown_name

Filter = Mapping[str, str | Sequence[str]]


def document_of(passage: Passage) -> Document:
    """A passage as a LangChain document. Metadata is JSON-able; boxes are fractions of the page.

    All pages in it count from 0, as those of LangChain's own loaders do; `page_label` is the printed number, `place`
    its readable form ("page iv", "slide 4", "sheet Budget, B17:D17").
    """
    return Document(
        id=f"{passage.document_id}-{'-'.join(map(str, passage.block_ids))}",
        page_content=passage.text,
        metadata={
            "source": passage.source,
            "title": passage.title,
            "page": passage.pages[0] - 1 if passage.pages else 0,
            "page_label": passage.page_labels[0] if passage.page_labels else "",
            "pages": [page - 1 for page in passage.pages],
            "place": passage.place,
            "total_pages": passage.total_pages,
            "start_index": passage.start_index,
            "score": passage.score,
            "score_kind": "landmark",
            "document_id": passage.document_id,
            "block_ids": list(passage.block_ids),
            "bboxes": [{**box.to_dict(), "page": box.page - 1} for box in passage.boxes],
        },
    )


def scope_of(wanted: Filter | None) -> Scope | None:
    """`{"document_id": ...}`, `{"collection_id": ...}`, `{"where": ...}` or several of them, each one or a list. Raises
    `InvalidRequest`."""
    if wanted is None or wanted == {}:
        return None
    if not isinstance(wanted, Mapping):
        raise InvalidRequest(f'A filter is a mapping, such as {{"where": "author=Lindqvist"}}, not {wanted!r}.')
    if unknown := set(wanted) - {"document_id", "collection_id", "where"}:
        raise InvalidRequest(
            f"A filter names document_id, collection_id or where, not {', '.join(sorted(map(str, unknown)))}. "
            'Properties are conditions: {"where": "author=Lindqvist"}.'
        )
    given = {name: (value,) if isinstance(value, str) else tuple(value) for name, value in wanted.items()}
    if not any(given.values()):
        raise InvalidRequest("A filter that names no document finds nothing; leave it out to search everything.")
    return Scope(given.get("document_id", ()), given.get("collection_id", ()), given.get("where", ()))


class _PassageRetriever(BaseRetriever):
    model_config = ConfigDict(extra="forbid")

    k: int = Field(default=4, ge=1)
    """Passages a query gives."""
    score_threshold: float | None = Field(default=None, ge=0, le=1)
    """Passages with a lower score (`Passage.score`) are left out; there may then be fewer than `k`."""
    filter: dict[str, str | list[str]] | None = None
    """What to search: `{"document_id": ...}`, `{"collection_id": ...}`, one id or a list; `{"where": "date>=2024"}`,
    one condition or a list."""

    @model_validator(mode="before")
    @classmethod
    def _knows_all_fields(cls, given: Any) -> Any:
        if isinstance(given, dict) and (problem := unknown_name(given, cls.model_fields, f"field of {cls.__name__}")):
            raise ValueError(problem)
        return given

    @abstractmethod
    def _passages(self, query: str, k: int, scope: Scope | None) -> list[Passage]: ...

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        score_threshold: float | None = None,
        filter: Filter | None = None,
    ) -> list[Document]:
        """What the call says wins over what the retriever was made with. Raises `InvalidRequest`."""
        if not isinstance(query, str):
            raise InvalidRequest(f"A query is a text, not {type(query).__name__}. In a chain, pick it out first.")
        k = self.k if k is None else k
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise InvalidRequest(f"k is a number of passages from 1 on, not {k!r}.")
        least = self.score_threshold if score_threshold is None else score_threshold
        scope = scope_of(self.filter if filter is None else filter)
        passages = self._passages(query, k, scope)
        return [document_of(passage) for passage in passages if least is None or passage.score >= least]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **wanted: Any
    ) -> list[Document]:
        find = self._get_relevant_documents
        return await asyncio.to_thread(find, query, run_manager=run_manager.get_sync(), **wanted)


class LandmarkRetriever(_PassageRetriever):
    """Passages of a library in this process, ranked as its search ranks them."""

    library: Library = Field(exclude=True, repr=False)

    def _passages(self, query: str, k: int, scope: Scope | None) -> list[Passage]:
        return self.library.search(query, k, within=scope)


class RemoteLandmarkRetriever(_PassageRetriever):
    """Passages of a library served by `cairn serve`, on this machine or another."""

    url: str
    """Where it is served, for example http://127.0.0.1:7860."""
    token: SecretStr | None = Field(default=None, exclude=True)
    timeout_seconds: float = Field(default=60.0, gt=0)

    @field_validator("url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"url must begin with http:// or https://, not {url!r}")
        return url.rstrip("/")

    def _passages(self, query: str, k: int, scope: Scope | None) -> list[Passage]:
        body = {"query": query, "k": k, "within": (scope or Scope()).to_dict()}
        headers = {"Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token.get_secret_value().strip()}"
        try:
            response = httpx2.post(
                f"{self.url}/api/v1/search", json=body, headers=headers, timeout=self.timeout_seconds
            )
            response.raise_for_status()
            found = response.json()
        except httpx2.HTTPStatusError as error:
            raise CairnError(
                f"{self.url} refused the search ({error.response.status_code}): {_reason(error.response)}"
            ) from error
        except (httpx2.HTTPError, ValueError) as error:
            raise CairnError(f"{self.url} could not be searched: {error}. Is `cairn serve` running there?") from error
        return [Passage.from_dict(passage) for passage in found["passages"]]


def _reason(response: httpx2.Response) -> str:
    try:
        plain = response.json()
    except ValueError:
        return response.reason_phrase
    return str(plain.get("error", plain) if isinstance(plain, dict) else plain)
