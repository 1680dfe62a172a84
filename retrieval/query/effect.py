"""Effects: what an answer would be without something that it rests on, measured the way the answer was made.

- Attention chose it: the log-probability of its words is measured again with a block left out of every softmax.
- A sentence was quoted: search and reader choose again, without the passage.
"""

from __future__ import annotations

import torch

from retrieval.engine.workspace import Workspace
from retrieval.errors import InvalidRequest
from retrieval.index.snapshot import MemoryIndex, scope_indices
from retrieval.query.answer import quotation_of
from retrieval.query.answer_generator import AnswerGenerator
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.question import Question
from retrieval.query.retrieve import whole_scope
from retrieval.types.answers import DEFAULT_POSITIONS, Answer, BlockEffect, PassageEffect
from retrieval.types.records import Scope


def effect_of_passage(
    workspace: Workspace, index: MemoryIndex, builder: PassageBuilder, answer: Answer, number: int
) -> PassageEffect:
    """What would be quoted without the passage of that number. Its blocks are left out; if they hold the quoted
    sentence, so are all blocks of that sentence.

    Raises `InvalidRequest` for another number, and for an answer that is no quotation.
    """
    if answer.quotation is None or answer.decided_by not in ("reader", "search"):
        raise InvalidRequest("This answer is not a quotation: no other sentence would take its place.")
    if not 0 <= number < len(answer.passages):
        raise InvalidRequest(f"The answer has no passage {number}; they count from 0 to {len(answer.passages) - 1}.")
    blocks, quoted = set(answer.passages[number].block_ids), set(answer.quotation.passage.block_ids)
    blocks |= quoted if blocks & quoted else set()
    left_out = tuple(sorted(blocks))
    now, _ = quotation_of(workspace, index, builder, _question(answer))
    without, sentence = quotation_of(workspace, index, builder, _question(answer, left_out))
    sentence = None if without.outcome == "not_found" else sentence
    same = sentence is not None and sentence.passage.text == answer.quotation.passage.text
    with_it, without_it = (
        draft.probability(draft.quotations[0].share) if draft.quotations else None for draft in (now, without)
    )
    return PassageEffect(number, left_out, sentence is not None, same, sentence, with_it, without_it)


def _question(answer: Answer, without: tuple[int, ...] = ()) -> Question:
    """As it was understood, with the blocks that are left out."""
    settings = answer.settings
    return Question(
        text=settings["asked"],
        k=settings["k"],
        scope=Scope.from_dict(settings["scope"]),
        quote=True,
        without=without,
        anyway=settings["anyway"],
    )


def effect_of_block(workspace: Workspace, index: MemoryIndex, answer: Answer, block_id: int) -> BlockEffect:
    """Log-probability of a stored answer with and without one of the blocks that it could read.

    Raises `InvalidRequest` for any other block.
    """
    if answer.decided_by != "attention":
        raise InvalidRequest("Attention did not choose this answer: leaving a block out would not change it.")
    token_ids, candidates = answer.settings["token_ids"], answer.settings["candidates"]
    if not token_ids or block_id not in candidates:
        raise InvalidRequest("This block was not among those that the answer could read, so it had no effect on it.")
    settings, opened = answer.settings, workspace.loaded()
    question = Question(
        text=answer.question,
        k=settings["k"],
        voters=settings["voters"],
        positions=settings.get("positions", DEFAULT_POSITIONS),
        scope=Scope.from_dict(settings["scope"]),
    )
    with index.open_for_question(workspace.catalogue) as snapshot:
        if settings.get("space") == "memory":
            candidates = whole_scope(snapshot, scope_indices(workspace, snapshot, question.scope))
            indices, memory = candidates.indices_C, candidates.memory
        else:
            indices = snapshot.indices_of_blocks(settings["candidates"])
            memory = snapshot.reader(indices)
        (block,) = torch.isin(indices, snapshot.indices_of_blocks([block_id])).nonzero().flatten().tolist() or [None]
        if block is None:
            raise InvalidRequest("This block is no longer stored, so its effect cannot be measured.")
        generator = AnswerGenerator(workspace, index, question)
        whole, effect = generator.effects(opened.model.prompt(settings["asked"]).ids, token_ids, memory, [(block,)])
    return BlockEffect(block_id, whole, whole + effect[block,], effect[block,])
