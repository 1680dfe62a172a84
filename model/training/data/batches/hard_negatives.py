"""Stretches of training documents that search takes for the answer to a question, and that are not it.

What a network already confuses teaches it more than other stretches do (Xiong et al. 2021, arXiv 2007.00808). So before
it is taught on from a checkpoint, that checkpoint searches the training documents for every training question.
"""

from dataclasses import replace
from pathlib import Path

from model.checkpoint.landmark_model import LandmarkModel
from model.training.data.batches.distillation_batches import QuestionKey
from model.training.data.batches.key_cache import cache_keys, retrieve_candidates
from model.training.data.batches.span_batches import SpanShape
from model.training.data.batches.span_dataset import build_span_dataset
from model.training.data.examples import TokenDocuments, places_of


def find_hard_negatives(
    model: LandmarkModel, data: TokenDocuments, shape: SpanShape, folder: Path
) -> dict[QuestionKey, list[tuple[int, int]]]:
    """For each question with an answer known word for word: (document, first token) of the blocks found that do not say
    it and are outside the passage that it was asked about. Stored documents are kept in `folder`, for another run."""
    only_asked = replace(shape, facts=0, definitions=0)
    documents, questions = build_span_dataset(model, data, [], [], only_asked)
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
