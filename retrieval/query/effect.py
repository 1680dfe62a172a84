"""Effects: what an answer would be without something that it rests on, measured the way the answer was made.

- Attention chose it: the log-probability of its words is measured again with a block left out of every softmax.
- A sentence was quoted: search and reader choose again, without the passage.
"""

from __future__ import annotations

import torch

from retrieval.engine.workspace import Workspace
from retrieval.errors import InvalidRequest
from retrieval.index.snapshot import MemoryIndex, scope_indices
from retrieval.query.answer import quoted_sentences
from retrieval.query.answer_generator import AnswerGenerator
from retrieval.query.draft import AnswerSelector
from retrieval.query.passage_builder import PassageBuilder
from retrieval.query.question import Question
from retrieval.query.retrieve import retrieve, whole_scope
from retrieval.types.answers import DEFAULT_POSITIONS, Answer, BlockEffect, PassageEffect, QuotedSentence
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
    _, with_it, _ = _quoted(workspace, index, builder, _question(answer))
    found, without_it, sentence = _quoted(workspace, index, builder, _question(answer, tuple(sorted(blocks))))
    same = sentence is not None and sentence.passage.text == answer.quotation.passage.text
    return PassageEffect(number, tuple(sorted(blocks)), found, same, sentence, with_it, without_it)


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


def _quoted(
    workspace: Workspace, index: MemoryIndex, builder: PassageBuilder, question: Question
) -> tuple[bool, float | None, QuotedSentence | None]:
    """Whether something is quoted, how likely the best sentence answers (None where nobody read), and the sentence."""
    builder = builder.for_one_question()
    workspace.loaded()
    with workspace.scheduler.question_open(), index.open_snapshot(workspace.catalogue) as snapshot:
        retrieved = retrieve(workspace, index, snapshot, question)
        left_out = snapshot.indices_of_blocks(question.without)
        selector = AnswerSelector(workspace, index, builder, question)
        draft = selector.decide(retrieved.over(retrieved.candidates.without(left_out)))
        found = draft.outcome != "not_found"
        likely = draft.probability(draft.quotations[0].share) if draft.quotations else None
        sentence = next(quoted_sentences(builder, draft, draft.quotations[:1]), None) if found else None
    return found and sentence is not None, likely, sentence


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
    with workspace.scheduler.question_open(), index.open_snapshot(workspace.catalogue) as snapshot:
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
