"""Passages that search takes for the answer to a question and that are not it, for the joint reader.

In training the wrong passages beside the right one came from the same document; when people ask, they come from search
over everything stored. So the landmark checkpoint searches the passages of many training questions for each of them
(as in Xiong et al. 2021, arXiv 2007.00808).

Axes: M questions, F found blocks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from model.checkpoint.landmark_model import LandmarkModel
from research.train.data.batches.key_cache import KeyCache, cache_keys, retrieve_candidates
from research.train.data.examples import encode_texts
from research.train.data.span_questions import SpanQuestion

LONGEST_QUESTION = 29
"""Tokens; longer questions are not searched for, since one with its prompt has to fit into a block."""
FOUND = 12
"""Blocks that search finds for a question."""
MOST = 6
"""Wrong passages of a question."""


def find_wrong_passages(model: LandmarkModel, questions: Sequence[SpanQuestion], folder: Path) -> None:
    """Write `folder`/wrong.jsonl: a line for each question with its id and the text around each block found in passages
    that are not its own and do not hold its answer. What is stored for it is kept in `folder`."""
    pieces = list(dict.fromkeys(piece for each in questions for piece in each.pieces))
    number_of = {piece: number for number, piece in enumerate(pieces)}
    documents = {number: ids for number, (ids, _) in enumerate(encode_texts(model.tokenizer, pieces)) if len(ids)}
    stored = cache_keys(model, documents, folder)
    document_of = np.repeat(
        list(stored.first), np.diff([*stored.first.values(), len(stored.tokens_NL)])
    )  # of each block
    encoded = [ids for ids, _ in encode_texts(model.tokenizer, [each.text for each in questions])]
    asked = [(each, ids) for each, ids in zip(questions, encoded, strict=True) if 0 < len(ids) <= LONGEST_QUESTION]
    met = retrieve_candidates(model, stored, [ids.tolist() for _, ids in asked], folder, found=FOUND)
    with (folder / "wrong.jsonl").open("w", encoding="utf-8") as out:
        for (question, _), found_F in zip(asked, met.found_MF.tolist(), strict=True):
            own = {number_of[piece] for piece in question.pieces}
            places = [(int(document_of[block]), block) for block in dict.fromkeys(found_F)]
            texts = [_around(model, stored, documents[at], at, block) for at, block in places if at not in own]
            answers = [answer.lower() for answer in question.answers]
            wrong = [text for text in dict.fromkeys(texts) if not any(answer in text.lower() for answer in answers)]
            out.write(json.dumps({"id": _key(question), "wrong": wrong[:MOST]}, ensure_ascii=False) + "\n")


def with_wrong_passages(questions: Sequence[SpanQuestion], file: Path) -> list[SpanQuestion]:
    """The questions with what search found for them, where the file has anything; before it what they had."""
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    found = {row["id"]: tuple(row["wrong"]) for row in rows}
    return [replace(each, wrong=(*found.get(_key(each), ()), *each.wrong[:2])) for each in questions]


def _around(model: LandmarkModel, stored: KeyCache, ids: np.ndarray, document: int, block: int) -> str:
    """The text of a block with the blocks before and behind it in its document."""
    start = (block - stored.first[document]) * stored.tokens_per_block
    return model.decode(
        ids[max(0, start - stored.tokens_per_block) : start + 2 * stored.tokens_per_block].tolist()
    ).strip()


def _key(question: SpanQuestion) -> str:
    return f"{question.source}:{question.id}"
