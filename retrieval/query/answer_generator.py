"""A landmark language model writes the answer, and its attention chooses what it reads.

- For each token, every memory layer and head chooses its blocks by their landmarks among the *whole* memory in scope:
  nothing stands between the question and that choice.
- Only where one token would compare more than `retrieve.MOST_LOGITS` landmarks the memory is narrowed first, to the
  candidates of the search; the answer says so (`GeneratedAnswer.space`).
- Whether what attention read made the answer is checked by leaving blocks out of its softmax (`effects`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from model.attention.memory import MemoryReader
from model.errors import ModelError
from model.inference.generate import GeneratedToken, answer_logprobs, generate
from retrieval.engine.workspace import Workspace
from retrieval.errors import InvalidRequest
from retrieval.index.snapshot import MemoryIndex, naming_damage
from retrieval.query.attention_mass import AnswerMass
from retrieval.query.question import EncodedQuestion, Question
from retrieval.query.retrieve import Candidates
from retrieval.query.sentences import QuotableBlocks
from retrieval.types.answers import NEEDS_WRITER, AnswerToken, Space

READ_AT_ONCE = 6
"""Rows of an answer with something left out, side by side in one pass: with SmolLM2 on two cores 0.39 of the time of
one after the other (`benchmarks/quality/evidence.py`)."""
BLOCKS_PER_TOKEN = 16
"""An answer's record keeps this many blocks for each token."""


@dataclass(frozen=True, eq=False)
class GeneratedAnswer:
    """How an answer was generated. `mass`: what attention read, by block, layer and head; `space`: what it had to
    choose from."""

    mass: AnswerMass
    space: Space
    interrupted: bool


class AnswerGenerator:
    """Generates an answer over the stored memory. `quotable`: word for word from these blocks, not in its own words."""

    def __init__(
        self, workspace: Workspace, index: MemoryIndex, question: Question, quotable: QuotableBlocks | None = None
    ) -> None:
        self._workspace, self._index, self._quotable = workspace, index, quotable
        self._model = workspace.opened.model
        self._policy, self._sampling = question.policy(), question.sampling(self._model)

    def generate(
        self, query: EncodedQuestion, candidates: Candidates, cancelled: Callable[[], bool]
    ) -> Generator[AnswerToken, None, GeneratedAnswer]:
        """Yields the tokens as they come. Cancelled: the answer so far. Raises `InvalidRequest` for a model that only
        finds, and for a question with no room."""
        model = self._model
        if not model.is_causal_lm:
            raise InvalidRequest(f"{model.source} only finds: it has no words of its own. {NEEDS_WRITER}")
        mass = AnswerMass(model.memory_layers, model.num_heads, model.evidence_weights_YH)
        steps = generate(
            model,
            query.prompt,
            memory=candidates.memory,
            policy=self._policy,
            sampling=self._sampling,
            quote_from=self._quotable.source if self._quotable else None,
            cancelled=cancelled,
        )
        for step in self._in_slots(steps):
            yield self._token(step, mass, candidates.block_ids)
        return GeneratedAnswer(mass, candidates.space, cancelled())

    def _token(self, step: GeneratedToken, mass: AnswerMass, block_ids: Sequence[int]) -> AnswerToken:
        if step.id < 0:  # text that was held back; no token of its own
            return AnswerToken(step.text, 0.0, 0.0, (), token_id=-1)
        of_token = mass.add(step.selections)
        blocks = tuple((block_ids[block], share) for block, share in of_token.strongest(BLOCKS_PER_TOKEN))
        quoted = self._quotable.place(*step.quote) if self._quotable and step.quote else None
        return AnswerToken(step.text, step.logprob, of_token.memory_share, blocks, quoted, step.id)

    def _in_slots(self, steps: Iterator[GeneratedToken]) -> Iterator[GeneratedToken]:
        """Each step in a slot of its own at the model, so that several people are answered at once."""
        while True:
            try:
                with naming_damage(self._index), self._workspace.scheduler.for_question():
                    step = next(steps, None)
            except ModelError as error:
                raise InvalidRequest(f"The question cannot be answered: {error}") from error
            if step is None:
                return
            yield step

    def effects(
        self,
        prompt_ids: Sequence[int],
        answer_ids: Sequence[int],
        memory: MemoryReader,
        left_out: Sequence[tuple[int, ...]],
    ) -> tuple[float, Mapping[tuple[int, ...], float]]:
        """Log-probability of an answer (nats), and how much it changes when some blocks of the memory together are left
        out of every softmax: negative where they made the answer likelier.

        Everything else is chosen and read as before; stored bytes come from the cache.
        """
        rows, logprobs = [(), *left_out], list[float]()
        for at in range(0, len(rows), READ_AT_ONCE):
            policy = replace(self._policy, left_out=tuple(rows[at : at + READ_AT_ONCE]))
            with naming_damage(self._index), self._workspace.scheduler.for_question(), torch.no_grad():
                found_BT = answer_logprobs(self._model, prompt_ids, answer_ids, memory=memory, policy=policy)
            logprobs += found_BT.sum(1).tolist()
        whole, *without = logprobs
        return whole, {blocks: each - whole for blocks, each in zip(left_out, without, strict=True)}
