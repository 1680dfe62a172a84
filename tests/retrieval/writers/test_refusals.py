"""Writers say in their own words that the documents do not say; that is no claim about the documents' subject."""

from __future__ import annotations

import pytest

from retrieval.types.answers import NOTHING_FOUND
from retrieval.writers.claims import claims_of
from retrieval.writers.output_filter import refuses


@pytest.mark.parametrize(
    "text",
    [
        NOTHING_FOUND,
        "The passages do not mention the capital of Mongolia.",
        "The provided documents don't contain any information about this.",
        "The capital of Mongolia is not mentioned in the passages [1][3].",
        "There is no information about the crew in the text.",
        "The answer to this question is: There is no answer to this question [4].",
        "I could not find the fee. The context does not say what a berth costs.",
        "This is not explicitly stated in any of the documents.",
    ],
)
def test_a_refusal(text: str) -> None:
    assert refuses(text)
    assert not list(claims_of(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The fee is 42 crowns [1]. The passages do not mention the owner.",
        "Bicycles are not found in the cellar.",
        "The tenant may not sublet the flat.",
        "The form must not contain the name of the patient.",
        "There is no crew.",
        "The engine does not start in cold weather [2].",
        "No bridge crosses the Ammer.",
    ],
)
def test_an_answer(text: str) -> None:
    assert not refuses(text)


def test_what_a_small_model_puts_before_its_answer_is_not_looked_up() -> None:
    for lead in ("The answer is: ", "The answer to this question is: ", "The notice says: ", "Answer: "):
        assert [claim for _, _, claim in claims_of(f"{lead}three weeks in July.")] == ["three weeks in July."]
    kept = "The fees are: 42 crowns a night."
    assert [claim for _, _, claim in claims_of(kept)] == [kept]


def test_beside_an_answer_only_the_rest_is_looked_up() -> None:
    text = "The fee is 42 crowns [1]. The passages do not mention the owner."
    assert [claim for _, _, claim in claims_of(text)] == ["The fee is 42 crowns."]
