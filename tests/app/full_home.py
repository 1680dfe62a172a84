"""A catalogue of 1,000 documents and 10,000 past questions, made without reading a file."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import insert

from storage.catalogue import Catalogue
from storage.catalogue.schema import answer_documents, answers, documents
from storage.fingerprint import MemoryFingerprint

DOCUMENTS, ANSWERS = 1_000, 10_000
BODY = json.dumps({"evidence": "x" * 3000})


def fill(home: Path, fingerprint: MemoryFingerprint, *, bodies: dict[int, str] | None = None) -> None:
    """Each answer used five of the documents. `bodies`: what some of the answers hold, by number."""
    catalogue = Catalogue.open(f"sqlite:///{home / 'cairn.sqlite3'}")
    digest = catalogue.put_fingerprint(fingerprint)
    used = [
        {"answer_id": f"{number:032x}", "document_id": f"{(7 * number + step) % DOCUMENTS:032x}"}
        for number in range(ANSWERS)
        for step in range(5)
    ]
    with catalogue.database.write() as connection:
        connection.execute(insert(documents), [_document(number, digest) for number in range(DOCUMENTS)])
        rows = [_answer(number, (bodies or {}).get(number, BODY)) for number in range(ANSWERS)]
        connection.execute(insert(answers), rows)
        connection.execute(insert(answer_documents), used)
    catalogue.close()


def _document(number: int, fingerprint: str) -> dict[str, object]:
    name = f"report {number}"
    return {
        "id": f"{number:032x}", "source": f"{name}.pdf", "title": name.title(), "kind": "pdf", "state": "ready",
        "content_sha256": f"{number:064x}", "fingerprint": fingerprint, "search_text": name, "notes": "[]",
        "added_at": f"2026-01-01T00:00:{number % 60:02d}.{number:06d}+00:00", "num_pages": 10, "num_characters": 20_000,
        "num_tokens": 5_000, "num_blocks": 80, "size_bytes": 4_000_000,
    }  # fmt: skip


def _answer(number: int, body: str) -> dict[str, object]:
    question = f"question {number} about the dam and the lake"
    return {
        "id": f"{number:032x}", "conversation_id": None, "question": question, "text": f"Answer {number}.",
        "created_at": f"2026-01-01T00:00:00.{number:06d}+00:00", "search_text": question, "body": body,
    }  # fmt: skip
