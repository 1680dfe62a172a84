"""Stretches of training documents that search takes for the answer to a question, and that are not it.

What a network already confuses teaches it more than other stretches do (Xiong et al. 2021, arXiv 2007.00808). So before
it is taught on from a checkpoint, that checkpoint searches the training documents for every training question.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.checkpoint.landmark_model import LandmarkModel
from research.train.data.batches.distillation_batches import QuestionKey
from research.train.data.batches.key_cache import cache_keys, retrieve_candidates
from research.train.data.examples import TokenDocuments, TokenQuestion, places_of


@dataclass(frozen=True)
class MinedShape:
    """What is stored to be searched, and how many blocks are found for a question."""

    stored_blocks: int = 13_000
    found: int = 16


def find_hard_negatives(
    model: LandmarkModel, data: TokenDocuments, shape: MinedShape, folder: Path
) -> dict[QuestionKey, list[tuple[int, int]]]:
    """For each question with an answer known word for word: (document, first token) of the blocks found that do not say
    it and are outside the passage that it was asked about. Stored documents are kept in `folder`, for another run."""
    documents, questions = _asked_documents(model, data, shape.stored_blocks)
    stored = cache_keys(model, documents, folder)
    met = retrieve_candidates(model, stored, [question.ids for question in questions], folder, found=shape.found)
    block_at = {
        block: (document, ordinal * stored.tokens_per_block)
        for document, ids in documents.items()
        for ordinal, block in enumerate(stored.blocks(document, 0, len(ids)))
    }
    found: dict[QuestionKey, list[tuple[int, int]]] = {}
    for question, found_F in zip(questions, met.found_MF, strict=True):
        if question.answerable:
            said = documents[question.document][question.start : question.stop]
            right = stored.blocks(question.document, *question.passage)
            right += found_F[[place for place, _ in places_of(said, stored.tokens_NL[found_F])]].tolist()
            found[question.document, question.ids] = [
                block_at[block] for block in dict.fromkeys(found_F.tolist()) if block not in right
            ]
    return found


def _asked_documents(
    model: LandmarkModel, data: TokenDocuments, stored_blocks: int
) -> tuple[dict[int, NDArray[Any]], list[TokenQuestion]]:
    """Documents by number and the questions about them whose answers are known word for word: those with most
    questions for their length, as many as shall be stored."""
    size, end = model.config.tokens_per_block, int(model.tokenizer.eos_token_id)
    exact = [each for each in data.questions if (each.exact and each.answer[-1] == end) or not each.answerable]
    count = Counter(question.document for question in exact)
    length = {number: -(-len(data.ids[number]) // size) for number in count}
    densest = sorted(count, key=lambda number: (-count[number] / length[number], number))
    room = np.cumsum([length[number] for number in densest]) <= stored_blocks
    documents = {number: data.ids[number] for number, fits in zip(densest, room, strict=True) if bool(fits)}
    # Read in one block, an end token behind them, so that no landmark stands in the prompt.
    questions = [
        question
        for question in exact
        if question.document in documents and len(model.prompt_of(question.ids).ids) + 1 < model.config.block_size
    ]
    return documents, questions
