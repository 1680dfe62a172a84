"""A library without a model: the methods of `retrieval.library.Library`, all in RAM, rich and repeatable evidence.

`deliver()` works off one page of the oldest waiting job, so that tests decide when ingestion moves.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import math
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from retrieval.errors import ExtractError, InvalidRequest, NotFound
from retrieval.passages import (
    Answer,
    AnswerHead,
    AnswerToken,
    BlockEffect,
    PageBox,
    Passage,
    PassageBlock,
    Timings,
)
from retrieval.records import Collection, Deleted, Document, Estimate, Job, PageText, Scope, TextBlock

LAYERS, HEADS = tuple(range(1, 12)), 9
BLOCK_CHARACTERS, LINES_A_BLOCK, BLOCKS_A_PAGE = 230, 4, 9
NOW = "2026-05-04T09:30:00+00:00"

PARAGRAPHS = (
    "The reservoir supplies drinking water to four towns in the valley. Its dam was finished in 1964 and raised "
    "by three metres in 1981, when the eastern villages were connected to the network. ",
    "Maintenance is carried out every spring, before the snow melts. The outer valves are inspected first, then "
    "the spillway, and last the two turbines in the lower gallery, which must be drained for it. ",
    "Water quality is measured at nine stations. Samples are taken on Mondays and Thursdays; the laboratory in "
    "Rosental reports the results within two days and publishes them on the notice board of each town hall. ",
    "In a dry summer the council may restrict the watering of gardens. The first step is a request, the second a "
    "ban between ten in the morning and six in the evening, the third a full ban until the level has recovered. ",
    "The footpath around the lake is eleven kilometres long. It is closed during works on the dam crest, and a "
    "diversion through the forest is signposted from the northern car park. ",
)


def page_words(seed: int, extra: str = "") -> str:
    chosen = random.Random(seed).sample(PARAGRAPHS, k=len(PARAGRAPHS)) * 2
    return (extra + "".join(chosen))[: BLOCK_CHARACTERS * BLOCKS_A_PAGE]


class FakeLibrary:
    def __init__(self, *, token_seconds: float = 0.0):
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self.token_seconds = token_seconds
        self.document_rows: dict[str, Document] = {}
        self.page_texts: dict[str, list[str]] = {}
        self.block_rows: dict[int, tuple[str, int, int, int]] = {}  # block id -> document, page, start, end
        self.job_rows: dict[str, Job] = {}
        self.collection_rows: dict[str, Collection] = {}
        self.answer_rows: dict[str, Answer] = {}
        self.heads: list[AnswerHead] = []
        self.asked: list[dict[str, Any]] = []

    # For tests

    def add(
        self, source: str, *, title: str = "", pages: int = 3, text: str = "", collection_id: str | None = None
    ) -> Document:
        identity = uuid.UUID(int=next(self._ids)).hex
        texts = [page_words(hash_of(source) + page, text if page == 0 else "") for page in range(pages)]
        with self._lock:
            self.page_texts[identity] = texts
            self._cut(identity, texts)
            size = pages * 1_350_000
            self.document_rows[identity] = Document(
                identity, source, title or Path(source).stem.title(), collection_id, pages, pages * 540,
                pages * BLOCKS_A_PAGE, size, "ready", NOW, "sha256:" + identity,
            )  # fmt: skip
            return self.document_rows[identity]

    def deliver(self, pages: int = 1, source: str | None = None) -> Job | None:
        """Work off some pages of the oldest job, or of the one of `source`."""
        with self._lock:
            waiting = [job for job in self.job_rows.values() if job.active and source in (None, job.source)]
            if not waiting:
                return None
            job = waiting[0]
            done = min(job.pages, job.pages_done + pages)
            job = replace(
                job, state="running", stage="reading", pages_done=done, tokens_done=done * 540, tokens_per_second=412.0,
                eta_seconds=(job.pages - done) * 540 / 412.0, seconds=done * 1.3,
            )  # fmt: skip
            if done == job.pages:
                job = replace(job, state="done", stage="", eta_seconds=0.0)
                document = self.document_rows[job.document_id]
                self.document_rows[job.document_id] = replace(document, state="ready")
            self.job_rows[job.id] = job
            return job

    def _cut(self, identity: str, texts: Sequence[str]) -> None:
        start = 0
        for page, text in enumerate(texts):
            for at in range(0, len(text), BLOCK_CHARACTERS):
                end = min(at + BLOCK_CHARACTERS, len(text))
                self.block_rows[next(self._ids)] = (identity, page, start + at, start + end)
            start += len(text)

    def _boxes(self, block: int) -> tuple[PageBox, ...]:
        identity, page, start, _end = self.block_rows[block]
        ordinal = (start - sum(len(text) for text in self.page_texts[identity][:page])) // BLOCK_CHARACTERS
        top = 0.08 + ordinal * 0.094
        return tuple(
            PageBox(
                page, 0.11, top + line * 0.0225, 0.89 if line < LINES_A_BLOCK - 1 else 0.55, top + line * 0.0225 + 0.019
            )
            for line in range(LINES_A_BLOCK)
        )

    def warm_up(self) -> None:
        pass

    # Ingestion

    def estimate(self, path: Path, *, password: str | None = None) -> Estimate:
        content = Path(path).read_bytes()
        if b"HOSTILE" in content:
            raise ExtractError("The file is damaged: its page tree refers to itself.")
        if b"ENCRYPTED" in content and password != "open sesame":
            raise ExtractError("The file is locked: a password is needed.")
        pages = max(1, content.count(b"/Type /Page\n") or 4)
        tokens = pages * 540
        return Estimate(Path(path).name, pages, tokens, pages * 9, pages * 1_350_000, tokens / 412.0, 80_000_000_000)

    def submit(
        self, path: Path, *, collection: str | None = None, source: str | None = None, password: str | None = None
    ) -> Job:
        estimate = self.estimate(path, password=password)
        with self._lock:
            group = self.create_collection(collection).id if collection else None
            document = self.add(source or Path(path).name, pages=estimate.pages, collection_id=group)
            self.document_rows[document.id] = replace(document, state="ingesting")
            job = Job(
                uuid.UUID(int=next(self._ids)).hex, document.id, document.source, group, "queued", "", 0,
                estimate.pages, 0, estimate.tokens, estimate.blocks, estimate.size_bytes, 0.0, None, 0.0, "", "", NOW,
            )  # fmt: skip
            self.job_rows[job.id] = job
            return job

    def jobs(self, *, active_only: bool = False, limit: int = 200) -> list[Job]:
        with self._lock:
            rows = [job for job in reversed(self.job_rows.values()) if job.active or not active_only]
            return rows[:limit]

    def job(self, job_id: str) -> Job:
        return _get(self.job_rows, "job", job_id)

    def cancel_job(self, job_id: str) -> Job:
        job = self.job(job_id)
        with self._lock:
            if job.active:
                self.job_rows[job_id] = replace(job, state="cancelled")
                self.document_rows.pop(job.document_id, None)
            return self.job_rows[job_id]

    def retry_job(self, job_id: str, *, password: str | None = None) -> Job:
        job = self.job(job_id)
        with self._lock:
            self.job_rows[job_id] = replace(job, state="queued", error="", pages_done=0)
            return self.job_rows[job_id]

    # Documents and collections

    def documents(self, *, search: str = "", collection_id: str | None = None, sort: str = "added") -> list[Document]:
        keys: dict[str, Callable[[Document], Any]] = {
            "source": lambda one: one.source.lower(), "title": lambda one: one.title.lower(),
            "size": lambda one: -one.size_bytes, "pages": lambda one: -one.pages,
        }  # fmt: skip
        if sort not in {"added", *keys}:
            raise InvalidRequest(f"Unknown sort order {sort!r}.")
        with self._lock:
            rows = list(reversed(self.document_rows.values()))
        words = search.lower()
        rows = [
            one
            for one in rows
            if words in f"{one.source} {one.title}".lower() and collection_id in (None, one.collection_id)
        ]
        return sorted(rows, key=keys[sort]) if sort in keys else rows

    def document(self, document_id: str) -> Document:
        return _get(self.document_rows, "document", document_id)

    def rename_document(self, document_id: str, title: str) -> Document:
        self.document_rows[document_id] = replace(self.document(document_id), title=title)
        return self.document_rows[document_id]

    def move_document(self, document_id: str, collection_id: str | None) -> Document:
        if collection_id is not None:
            _get(self.collection_rows, "collection", collection_id)
        self.document_rows[document_id] = replace(self.document(document_id), collection_id=collection_id)
        return self.document_rows[document_id]

    def delete_documents(self, document_ids: Sequence[str]) -> Deleted:
        gone = [self.document(identity) for identity in document_ids]
        with self._lock:
            for document in gone:
                del self.document_rows[document.id]
            used = [
                one.id
                for one in self.answer_rows.values()
                if {p.document_id for p in one.passages} & {d.id for d in gone}
            ]
            for identity in used:
                self.delete_answer(identity)
        return Deleted(len(gone), sum(d.blocks for d in gone), len(used), sum(d.size_bytes for d in gone))

    def collections(self) -> list[Collection]:
        with self._lock:
            counts = [document.collection_id for document in self.document_rows.values()]
            return [replace(one, documents=counts.count(one.id)) for one in self.collection_rows.values()]

    def create_collection(self, name: str) -> Collection:
        with self._lock:
            for one in self.collection_rows.values():
                if one.name == name:
                    return one
            made = Collection(uuid.UUID(int=next(self._ids)).hex, name, 0, NOW)
            self.collection_rows[made.id] = made
            return made

    def rename_collection(self, collection_id: str, name: str) -> Collection:
        renamed = replace(_get(self.collection_rows, "collection", collection_id), name=name)
        self.collection_rows[collection_id] = renamed
        return renamed

    def delete_collection(self, collection_id: str) -> None:
        _get(self.collection_rows, "collection", collection_id)
        for document in list(self.document_rows.values()):
            if document.collection_id == collection_id:
                self.document_rows[document.id] = replace(document, collection_id=None)
        del self.collection_rows[collection_id]

    def page_image(self, document_id: str, page: int, *, width_px: int = 1200) -> bytes:
        text = self._page(document_id, page)
        image = Image.new("RGB", (width_px, round(width_px * 1.414)), "white")
        draw = ImageDraw.Draw(image)
        for ordinal in range(math.ceil(len(text) / BLOCK_CHARACTERS)):
            piece = text[ordinal * BLOCK_CHARACTERS :][:BLOCK_CHARACTERS]
            for line in range(LINES_A_BLOCK):
                words = piece[line * 58 : (line + 1) * 58].replace("\n", " ").encode("ascii", "replace").decode()
                top = (0.08 + ordinal * 0.094 + line * 0.0225) * image.height
                draw.text((0.11 * width_px, top), words, fill="#222", font_size=width_px * 0.0245)
        out = io.BytesIO()
        image.save(out, "PNG")
        return out.getvalue()

    def page_text(self, document_id: str, page: int) -> PageText:
        text = self._page(document_id, page)
        start = sum(len(one) for one in self.page_texts[document_id][:page])
        blocks = tuple(
            TextBlock(block, first, last, self._boxes(block))
            for block, (identity, on, first, last) in self.block_rows.items()
            if identity == document_id and on == page
        )
        return PageText(document_id, page, str(page + 1), text, start, blocks)

    def _page(self, document_id: str, page: int) -> str:
        self.document(document_id)
        if not 0 <= page < len(self.page_texts[document_id]):
            raise NotFound("page", page + 1)
        return self.page_texts[document_id][page]

    # Questions

    def search(self, query: str, k: int = 8, *, within: Scope | None = None) -> list[Passage]:
        ranked = self._rank(query, within)
        return [self._passage(block, score) for block, score in ranked[:k]]

    def _rank(self, query: str, within: Scope | None) -> list[tuple[int, float]]:
        words = set(query.lower().split())
        scored = []
        with self._lock:
            for block, (identity, _page, start, end) in self.block_rows.items():
                document = self.document_rows.get(identity)
                if document is None or document.state != "ready" or not _visible(document, within):
                    continue
                text = self._text(identity, start, end).lower()
                score = sum(word in text for word in words) + random.Random(hash_of(f"{query}{block}")).random()
                scored.append((block, score))
        scored.sort(key=lambda item: -item[1])
        total = sum(2.0**score for _, score in scored[:24]) or 1.0
        return [(block, 2.0**score / total) for block, score in scored]

    def _text(self, identity: str, start: int, end: int) -> str:
        return "".join(self.page_texts[identity])[start:end]

    def _passage(self, block: int, score: float) -> Passage:
        identity, page, start, end = self.block_rows[block]
        document = self.document_rows[identity]
        return Passage(
            identity, document.source, document.title, (page,), (str(page + 1),), start, end,
            self._text(identity, start, end), score, (block,),
            (PassageBlock(block, score, start, end, self._boxes(block)),), document.pages,
        )  # fmt: skip

    def ask(
        self,
        question: str,
        *,
        k: int = 8,
        within: Scope | None = None,
        quote: bool = False,
        max_tokens: int = 128,
        voters: str = "group",
        conversation_id: str | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[AnswerToken | Answer]:
        self.asked.append({"question": question, "k": k, "within": within, "quote": quote, "max_tokens": max_tokens,
                           "voters": voters, "conversation_id": conversation_id})  # fmt: skip
        if not question.strip():
            raise InvalidRequest("The question is empty.")
        begun = time.monotonic()
        ranked = self._rank(question, within)
        chosen, missed = ranked[:k], ranked[k : k + 4]
        found = "unicorn" not in question.lower() and bool(chosen)
        text = self._text(*self._span(chosen[0][0])) if found else ""
        sentence = (max(text.split(". "), key=len).strip() + ".")[:220] if text else "The documents do not say."
        pieces = [piece if at == 0 else " " + piece for at, piece in enumerate(sentence.split(" "))][:max_tokens]
        dice = random.Random(hash_of(question))
        tokens: list[AnswerToken] = []
        for at, piece in enumerate(pieces):
            if cancelled():
                break
            if self.token_seconds:
                time.sleep(self.token_seconds)
            token = self._token(piece, at, len(pieces), chosen, found, dice)
            tokens.append(token)
            yield token
        yield self._finish(question, sentence, tokens, chosen, missed, found, begun, dice, conversation_id,
                           {"k": k, "voters": voters, "quote": quote, "max_tokens": max_tokens})  # fmt: skip

    def _span(self, block: int) -> tuple[str, int, int]:
        identity, _page, start, end = self.block_rows[block]
        return identity, start, end

    def _token(
        self, piece: str, at: int, count: int, chosen: Sequence[tuple[int, float]], found: bool, dice: random.Random
    ) -> AnswerToken:
        masses = []
        for rank, (block, score) in enumerate(chosen):
            centre = (rank + 0.5) / max(1, len(chosen)) * count
            near = math.exp(-((at - centre) ** 2) / (2 * (count / 4) ** 2))
            mass = (0.75 if found else 0.12) * (score * 1.4 + 0.22 * near) * (0.7 + 0.6 * dice.random()) / 2
            if mass > 0.035:
                masses.append((block, round(mass, 4)))
        masses.sort(key=lambda item: -item[1])
        share = min(0.97, sum(mass for _, mass in masses))
        return AnswerToken(piece, -0.05 - 1.4 * dice.random(), share, tuple(masses))

    def _finish(
        self, question: str, sentence: str, tokens: list[AnswerToken], chosen: Sequence[tuple[int, float]],
        missed: Sequence[tuple[int, float]], found: bool, begun: float, dice: random.Random,
        conversation_id: str | None, settings: dict[str, Any],
    ) -> Answer:  # fmt: skip
        totals = {
            block: sum(dict(token.blocks).get(block, 0.0) for token in tokens) / max(1, len(tokens))
            for block, _ in chosen
        }
        heat = {
            block: tuple(
                tuple(round(total * 3 * dice.random() ** (1 + abs(row - 6)), 4) for _ in range(HEADS))
                for row in range(len(LAYERS))
            )
            for block, total in totals.items()
        }
        passages = sorted((self._passage(block, total) for block, total in totals.items()), key=lambda one: -one.score)
        spent = time.monotonic() - begun
        answer = Answer(
            uuid.uuid4().hex, conversation_id, question, sentence if len(tokens) else "", found,
            0.82 if found else 0.07, settings["quote"], tuple(tokens), tuple(passages),
            tuple(self._passage(block, score * 0.6) for block, score in missed),
            sum(token.memory_share for token in tokens) / max(1, len(tokens)), LAYERS, HEADS, heat,
            Timings(0.012, 0.09, max(0.2, spent)), "cairn-small (sha256 5b1c…)", "9f3d2a", settings, NOW,
        )  # fmt: skip
        with self._lock:
            self.answer_rows[answer.id] = answer
            self.heads.insert(0, AnswerHead(answer.id, question, answer.text, NOW, conversation_id, found))
        return answer

    def answers(
        self, *, limit: int = 100, offset: int = 0, search: str = "", conversation_id: str | None = None
    ) -> list[AnswerHead]:
        words = search.lower()
        rows = (
            head
            for head in self.heads
            if words in f"{head.question} {head.text}".lower() and conversation_id in (None, head.conversation_id)
        )
        return list(itertools.islice(rows, offset, offset + limit))

    def answer(self, answer_id: str) -> Answer:
        return _get(self.answer_rows, "answer", answer_id)

    def delete_answer(self, answer_id: str) -> None:
        self.answer(answer_id)
        del self.answer_rows[answer_id]
        self.heads = [head for head in self.heads if head.id != answer_id]

    def effect_of_block(self, answer_id: str, block_id: int) -> BlockEffect:
        answer = self.answer(answer_id)
        if block_id not in answer.heat:
            raise NotFound("block", block_id)
        whole = sum(token.logprob for token in answer.tokens)
        mass = sum(sum(row) for row in answer.heat[block_id])
        return BlockEffect(block_id, whole, whole - 0.4 * mass, -0.4 * mass)

    # Upkeep

    def doctor(self) -> dict[str, Any]:
        documents = self.documents()
        return {
            "device": "cpu", "dtype": "float32", "cores": 2, "free_disk_bytes": 80_000_000_000, "home": "/data/cairn",
            "model": {"name": "cairn-small", "layers": 12, "heads": 9, "block_size": 64},
            "memory": {"documents": len(documents), "blocks": sum(one.blocks for one in documents),
                       "size_bytes": sum(one.size_bytes for one in documents)},
            "versions": {"python": "3.11", "torch": "2.13.0"},
            "problems": [],
        }  # fmt: skip

    def close(self) -> None:
        pass


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _visible(document: Document, within: Scope | None) -> bool:
    if within is None or not (within.document_ids or within.collection_ids):
        return True
    return document.id in within.document_ids or document.collection_id in within.collection_ids


def _get(rows: dict[str, Any], kind: str, key: str) -> Any:
    if key not in rows:
        raise NotFound(kind, key)
    return rows[key]
