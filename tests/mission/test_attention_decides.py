"""The mission: questions run through the model, attention chooses blocks of the stored memory, and that is the answer.

Through the public library, with a small landmark language model: what attention reads is taken away, spoilt or chosen
at random, and the answers go with it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from model.attention.selection import choose_blocks
from retrieval.errors import InvalidRequest
from retrieval.index.blocks import StoredMemoryReader
from retrieval.types.answers import Answer
from tests.mission.conftest import Keyed
from tests.mission.passkey_model import QUESTION

MOST_OF_TEN = 9
RIGHT_OF_TEN = 7
CHANCE_OF_TEN = 2


@pytest.fixture(scope="module")
def given(keyed: Keyed) -> list[Answer]:
    """The answers as they are, each token of each head choosing for itself."""
    return keyed.answers(voters="token", positions="library")


def changed(given: list[Answer], answers: list[Answer]) -> int:
    return sum(one.text != other.text for one, other in zip(given, answers, strict=True))


@pytest.mark.parametrize(
    ("voters", "positions"), [("token", "library"), ("head", "library"), ("group", "library"), ("token", "paper")]
)
def test_attention_finds_the_key_in_the_whole_memory_and_writes_it(
    keyed: Keyed, given: list[Answer], voters: str, positions: str
) -> None:
    asked = (voters, positions) == ("token", "library")
    answers = given if asked else keyed.answers(voters=voters, positions=positions)
    assert keyed.right(answers) >= RIGHT_OF_TEN, [answer.text for answer in answers]
    for answer in answers:
        assert (answer.decided_by, answer.settings["space"]) == ("attention", "memory")
        assert not answer.quote and answer.memory_share > 0


def test_without_what_attention_reads_the_answers_change(
    keyed: Keyed, given: list[Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = StoredMemoryReader.read

    def zeros(self: StoredMemoryReader, layer: int, ids: torch.Tensor) -> Any:
        keys, values, lengths = read(self, layer, ids)
        return torch.zeros_like(keys), torch.zeros_like(values), lengths

    monkeypatch.setattr(StoredMemoryReader, "read", zeros)
    assert changed(given, keyed.answers(voters="token")) >= MOST_OF_TEN


def test_with_the_blocks_that_it_wants_least_the_answers_change(
    keyed: Keyed, given: list[Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def worst(self: StoredMemoryReader, layer: int, queries: torch.Tensor, k: int) -> torch.Tensor:
        return choose_blocks(-queries, self.landmarks(layer), k)

    monkeypatch.setattr(StoredMemoryReader, "search", worst)
    answers = keyed.answers(voters="token")
    assert changed(given, answers) >= MOST_OF_TEN and keyed.right(answers) <= CHANCE_OF_TEN


def test_with_random_landmarks_nothing_is_found(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: StoredMemoryReader, layer: int, queries: torch.Tensor, k: int) -> torch.Tensor:
        landmarks = self.landmarks(layer)
        drawn = torch.randn(landmarks.shape, generator=torch.Generator().manual_seed(layer))
        return choose_blocks(queries, drawn * landmarks.std(), k)

    monkeypatch.setattr(StoredMemoryReader, "search", lost)
    assert keyed.right(keyed.answers(voters="token")) <= CHANCE_OF_TEN


def test_what_is_shown_is_what_decided(keyed: Keyed, given: list[Answer]) -> None:
    """The passage with the most attention holds the key, leaving it out makes the answer less likely than leaving out
    others, and each digit was read from its blocks."""
    first = sum(str(key) in answer.passages[0].text for answer, key in zip(given, keyed.keys.values(), strict=True))
    assert first >= RIGHT_OF_TEN
    checks = [answer.check for answer in given if answer.check is not None]
    assert sum(check.decided and check.effect < -1.0 for check in checks) >= RIGHT_OF_TEN
    assert sum(answer.shows_attention for answer in given) >= RIGHT_OF_TEN
    for answer in given:
        assert set(answer.heat) <= set(answer.settings["candidates"])
        assert len(answer.layers) == 2 and all(len(rows) == 2 for rows in answer.heat.values())


def test_the_effect_of_a_block_is_that_of_leaving_it_out(keyed: Keyed, given: list[Answer]) -> None:
    answer = given[0]
    assert answer.check is not None
    effect = keyed.library.answers.effect_of_block(answer.id, answer.check.block_id)
    assert effect.delta == pytest.approx(answer.check.effect, abs=1e-3)
    logprobs = sum(token.logprob or 0.0 for token in answer.tokens)
    assert effect.logprob_with == pytest.approx(logprobs, abs=1e-3)


def test_a_memory_too_large_is_narrowed_by_the_search_and_the_answer_says_so(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retrieval.query.retrieve.MOST_LOGITS", 10)
    answers = keyed.answers(voters="token")
    assert {answer.settings["space"] for answer in answers} == {"candidates"}


def test_positions_that_do_not_exist_are_refused(keyed: Keyed) -> None:
    with pytest.raises(InvalidRequest, match="positions is 'true'"):
        list(keyed.library.ask(QUESTION, positions="true"))


def test_the_chain_of_the_documentation_answers_and_says_what_was_read(keyed: Keyed) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "langchain.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "RunnableLambda" in block]
    names: dict[str, Any] = {"library": keyed.library}
    exec(code, names)
    found = names["chain"].invoke(QUESTION)
    assert found["answer"].strip() and found["passages"] and found["checked"] is not None
