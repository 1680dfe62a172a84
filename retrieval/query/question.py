"""A question: what its user asks for, and what the model makes of it before it reads any document.

Axes: Y memory layers, W weighed memory layers, H query heads, G KV heads, Q question tokens, D head dim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from torch import Tensor

from model.attention.selection import Positions, SelectionPolicy, Voters
from model.checkpoint.landmark_model import LandmarkModel
from model.errors import ContextTooLong, ModelError
from model.inference.generate import Sampling
from model.inference.prompt import EncodedPrompt, encode_prompt
from retrieval.errors import InvalidRequest
from retrieval.query.features import QuestionTerms
from retrieval.types.records import Scope
from retrieval.types.writer import Turn


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to answer and how."""

    text: str
    k: int
    scope: Scope | None = None
    quote: bool | None = None
    """Word for word from the documents; None: as the model's settings say."""
    max_tokens: int = 128
    voters: str = "group"
    positions: str = "library"
    conversation_id: str | None = None
    earlier: tuple[Turn, ...] = ()
    """What was said before, oldest first, where there is no conversation."""
    whole: bool | None = None
    """Read all of the documents in scope instead of the best passages, for which a writer is needed; None: where the
    question asks for it and a scope is chosen."""
    without: tuple[int, ...] = ()
    """Ids of blocks that are left out, to see what the answer would be without them."""
    anyway: bool = False
    """Answer from what is nearest, also where the memory does not seem to hold an answer."""

    def policy(self) -> SelectionPolicy:
        """Raises `InvalidRequest`."""
        check_count(self.k)
        try:
            voters, positions = cast(Voters, self.voters), cast(Positions, self.positions)
            return SelectionPolicy(top_k=self.k, voters=voters, positions=positions)
        except ModelError as error:
            raise InvalidRequest(str(error)) from error

    def sampling(self, model: LandmarkModel) -> Sampling:
        """Raises `InvalidRequest`."""
        try:
            return Sampling(max_tokens=self.max_tokens, stop=model.config.stop)
        except ModelError as error:
            raise InvalidRequest(str(error)) from error


def check_count(k: int) -> None:
    """Raises `InvalidRequest` for a k that cannot be served."""
    if k < 1:
        raise InvalidRequest(f"k is {k}; ask for at least one passage.")


@dataclass(frozen=True, eq=False)
class EncodedQuestion:
    """One forward pass over the prompt: search and the answer go on from it."""

    asked: QuestionTerms
    prompt: EncodedPrompt
    mean_query_YGD: Tensor
    """For landmarks: the mean over the question's tokens, weighted, summed over the heads that share keys."""
    queries_QWGD: Tensor
    """For token keys, see `LandmarkModel.token_queries`."""


def encode_question(model: LandmarkModel, text: str) -> EncodedQuestion:
    """Raises `InvalidRequest` if the question is empty or too long."""
    if not text.strip():
        raise InvalidRequest("The question is empty.")
    prompt = model.prompt(text.strip())
    try:
        encoded = encode_prompt(model, prompt.ids)
    except ContextTooLong as error:
        raise InvalidRequest(f"The question is too long for this model: {error}") from error
    queries_YHQD = encoded.queries_YHQD.cpu()[:, :, prompt.question]
    return EncodedQuestion(
        QuestionTerms(text), encoded, mean_query(model, queries_YHQD), model.token_queries(queries_YHQD)
    )


def mean_query(model: LandmarkModel, queries_YHQD: Tensor) -> Tensor:
    """query_YGD, see `EncodedQuestion.mean_query_YGD`."""
    weighted_YHD = queries_YHQD.mean(2) * model.search_weights_YH[..., None]
    return weighted_YHD.reshape(len(weighted_YHD), model.num_kv_heads, -1, model.head_dim).sum(2)
