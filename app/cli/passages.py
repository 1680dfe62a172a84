"""Passages as the command line writes them, for programs and for people."""

from __future__ import annotations

from typing import Any

from app.cli.output import one_line, printable
from retrieval.types.passages import Passage


def passage_row(passage: Passage) -> dict[str, Any]:
    """`pages` count from 1; `start_index` and `end_index` count characters of the document's text."""
    return {
        "document_id": passage.document_id,
        "source": passage.source,
        "pages": list(passage.pages),
        "page_labels": list(passage.page_labels),
        "start_index": passage.start_index,
        "end_index": passage.end_index,
        "text": passage.text,
        "score": passage.score,
        "block_ids": list(passage.block_ids),
    }


def passage_text(number: int, passage: dict[str, Any], width: int = 160) -> str:
    pages = ", ".join(passage["page_labels"]) or ", ".join(map(str, passage["pages"]))
    head = f"{number:2}. {passage['score']:.3f}  {printable(passage['source'])}, page {printable(pages)}"
    return f"{head}\n    {one_line(passage['text'], width)}"
