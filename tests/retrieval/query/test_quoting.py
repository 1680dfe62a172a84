"""Which sentence is quoted, and that it stands whole in the blocks."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.reading.ranker import Ranker
from model.reading.span_reader import FoundSpan, SpanReading
from retrieval.query.features import QuestionTerms
from retrieval.query.rank import quote_best, score_sentences, sentences_of
from retrieval.query.retrieve import with_neighbours
from retrieval.query.sentences import QuotableBlocks, Quotation
from retrieval.types.answers import Answer, AnswerToken, Timings
from storage.records import Block
from tests.tiny_model import tiny_model

TEXT = (
    "A heading line\nThe cairn was built by surveyors of the line. Nobody knows who piled the first stones there. "
    "Does anybody remember the old road? The last storm took away the upper half of it."
)

FOLDER = Path(__file__).parents[3] / "model" / "default"
_STORED = json.loads((FOLDER / "ranker.json").read_text())
SHIPPED = Ranker.load(FOLDER, _STORED["finder"], _STORED["reader"])


def best_sentences(quotable, matches_QCL, *, question="", ranker=SHIPPED, read=None, title_of=None, count=1):
    """As the shipped ranker has them."""
    asked, title_of = QuestionTerms(question), title_of or {}
    found = sentences_of(quotable, matches_QCL, asked=asked, read=read, title_of=title_of)
    return quote_best(score_sentences(found, ranker), count)


def blocks_of(model, text, document_id="d"):
    ids = model.tokenize(text).ids
    per_block = model.config.tokens_per_block
    return [
        Block(
            id=ordinal + 1,
            document_id=document_id,
            ordinal=ordinal,
            start=ordinal * per_block,
            end=min(len(ids), (ordinal + 1) * per_block),
            shard_id=1,
            shard="s",
            index_in_shard=ordinal,
            boxes=(),
            tokens=tuple(ids[ordinal * per_block : (ordinal + 1) * per_block]),
        )
        for ordinal in range(-(-len(ids) // per_block))
    ]


def sentences(quotable, **given):
    """What may be quoted, in text order where nothing speaks for one of them."""
    blocks = len(quotable._blocks)
    found = best_sentences(quotable, torch.zeros(1, blocks, 16), count=10, **given)
    return [TEXT[quotation.start : quotation.stop] for quotation in found]


def reading_of(**probabilities):
    """A reader that finds the given words, each with its probability, and nothing else."""

    def read(passages):
        spans = []
        for passage in passages:
            spans.append([])
            for start, stop in passage.sentences:
                held = [word for word in probabilities if word in passage.text[start:stop]]
                begin = passage.text.index(held[0], start) if held else start
                probability = probabilities[held[0]] if held else 0.0
                spans[-1].append(FoundSpan(probability, begin, begin + len(held[0] if held else "")))
        return SpanReading(spans, 0.0)

    return read


def test_whole_sentences_with_enough_words_that_are_no_questions_are_candidates() -> None:
    model = tiny_model(block_size=16)
    assert sentences(QuotableBlocks(model, blocks_of(model, TEXT), {"d": TEXT})) == [
        "The cairn was built by surveyors of the line.",
        "Nobody knows who piled the first stones there.",
        "The last storm took away the upper half of it.",
    ]


def test_the_reader_decides_and_may_choose_a_heading() -> None:
    model = tiny_model(block_size=16)
    quotable = QuotableBlocks(model, blocks_of(model, TEXT), {"d": TEXT})
    read = reading_of(heading=0.8, storm=0.3)
    assert sentences(quotable, read=read)[:2] == [
        "A heading line",
        "The cairn was built by surveyors of the line. Nobody knows who piled the first stones there. "
        "Does anybody remember the old road? The last storm took away the upper half of it.",
    ]


def test_the_reader_points_at_words() -> None:
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, TEXT)
    quotable = QuotableBlocks(model, blocks, {"d": TEXT})
    zeros = torch.zeros(1, len(blocks), 16)
    (found,) = best_sentences(quotable, zeros, read=reading_of(surveyors=0.9))
    assert TEXT[slice(*found.answer)] == "surveyors"


@pytest.mark.parametrize(
    ("most", "said"), [(99, ["Rain", " fell", " ", "for", " days"]), (12, ["Rain", " fell"]), (2, ["Ra"])]
)
def test_words_are_said_whole_where_they_fit_and_those_that_answer_are_marked(most, said):
    model, text = tiny_model(block_size=16), "Rain fell for days."
    quotable = QuotableBlocks(model, blocks_of(model, text), {"d": text})
    words = list(quotable.words(Quotation(0, 0, len(text) - 1, (10, 13)), most))
    assert [word for word, _, _ in words] == said
    assert [word for word, _, answers in words if answers] == [word for word in said if word == "for"]
    assert all(text[start:end] == word for word, (_, start, end), _ in words)


def test_what_is_written_without_spaces_is_said_in_pieces_up_to_the_limit():
    model, text = tiny_model(block_size=16), "猫 " + "雨が何日も降った" * 10
    quotable = QuotableBlocks(model, blocks_of(model, text), {"d": text})
    said = [word for word, _, _ in quotable.words(Quotation(0, 0, len(text), (0, 0)), 50)]
    assert len(said) == 4 and 34 < len("".join(said)) <= 50 and text.startswith("".join(said))


def test_a_sentence_of_which_the_candidates_hold_an_end_alone_is_not_quoted() -> None:
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, TEXT)
    missing = [block if block.ordinal != 2 else None for block in blocks]  # inside the first sentence
    assert sentences(QuotableBlocks(model, missing, {"d": TEXT}))[0] == "Nobody knows who piled the first stones there."


@pytest.mark.parametrize("held", [(1, 2), (2, 3), (2,)], ids=["end missing", "beginning missing", "both missing"])
def test_a_sentence_that_goes_on_behind_the_candidates_is_quoted_whole(held: tuple[int, ...]) -> None:
    """Rows of tables are often longer than a block with those around it."""
    model = tiny_model(block_size=16)
    blocks = [block if block.ordinal in held else None for block in blocks_of(model, TEXT)]
    assert sentences(QuotableBlocks(model, blocks, {"d": TEXT})) == ["The cairn was built by surveyors of the line."]


def test_a_sentence_that_two_runs_touch_is_one_with_the_tokens_of_both_and_none_where_others_are_left_out() -> None:
    model = tiny_model(block_size=16)
    text = "A heading\nThe cairn stands where the old road leaves the valley and the line of surveyors began, says one."
    blocks = [block if block.ordinal in (2, 4) else None for block in blocks_of(model, text)]
    (found,) = QuotableBlocks(model, blocks, {"d": text}).sentences()
    assert found.text == text[10:] and {index for index, _ in found.places} == {2, 4}
    parts = QuotableBlocks(model, blocks, {"d": text}, apart=True).sentences()
    assert [(one.start, one.stop) for one in parts] == [(30, 45), (60, 75)]


def test_of_a_text_without_a_whole_sentence_the_part_at_hand_is_quoted() -> None:
    """A sentence longer than all candidates is no reason to say that the documents do not say."""
    model, text = tiny_model(block_size=16), f"It was built {'and built again ' * 40}by surveyors."
    blocks = blocks_of(model, text)
    inside = [block if block.ordinal in (2, 3) else None for block in blocks]
    quotable = QuotableBlocks(model, inside, {"d": text})
    (found,) = best_sentences(quotable, torch.zeros(1, len(blocks), 16))
    assert (found.start, found.stop) == (30, 60)


def test_the_sentence_that_holds_the_best_match_of_every_question_token_wins() -> None:
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, TEXT)
    quotable = QuotableBlocks(model, blocks, {"d": TEXT})
    for first, second, wanted in (
        ("surveyors", "built", "surveyors"),
        ("cairn", "piled", "piled"),
        ("x", "upper", "up"),
    ):
        matches_QCL = torch.full((2, len(blocks), 16), -0.5)
        for q, word in enumerate((first, second)):
            start = TEXT.find(word)
            for row in range(start, start + len(word) if start >= 0 else start):
                matches_QCL[q, row // 15, row % 15] = 0.2 + 0.1 * q
        (found,) = best_sentences(quotable, matches_QCL)
        assert wanted in TEXT[found.start : found.stop]


def test_the_next_best_sentences_come_and_repetitions_do_not() -> None:
    model = tiny_model(block_size=16)
    text = "The fox sleeps in the den. The wolf hunts at night. The  FOX sleeps in the den. A bear eats fish at noon."
    blocks = blocks_of(model, text)
    matches_QCL = torch.full((1, len(blocks), 16), 0.1)
    for word, match in (("fox", 0.9), ("wolf", 0.5), ("FOX", 0.8), ("bear", 0.7)):
        at = text.index(word)
        matches_QCL[0, at // 15, at % 15] = match
    quotable = QuotableBlocks(model, blocks, {"d": text})
    found = best_sentences(quotable, matches_QCL, count=9)

    assert [text[one.start : one.stop].split()[1] for one in found] == ["fox", "bear", "wolf"]
    assert [[hit.ordinal for hit in quotable.hits(one)] for one in found] == [[0, 1], [5, 6], [1, 2, 3]]
    assert [round(one.score, 3) for one in found] == [0.9, 0.7, 0.5]
    assert len(best_sentences(quotable, matches_QCL, count=2)) == 2


def test_a_list_is_quoted_with_what_announces_it_and_its_items_are_not_offered_again() -> None:
    model = tiny_model(block_size=16)
    items = "• mice of all sizes in the field\n• berries that are ripe and red"
    text = f"The fox eats these:\n{items}\n\nThe wolf hunts at night."
    blocks = blocks_of(model, text)
    matches_QCL = torch.full((1, len(blocks), 16), 0.1)
    matches_QCL[0, 0, 4] = 0.9
    quotable = QuotableBlocks(model, blocks, {"d": text})
    found = best_sentences(quotable, matches_QCL, count=4)
    said = [text[one.start : one.stop] for one in found]
    assert said == [text[: text.index("\n\n")], "The wolf hunts at night."]


def test_a_short_answer_is_what_the_pointed_tokens_spell() -> None:
    tokens = tuple(AnswerToken(text, 0.0, 0.0, (), pointed=text != "Died") for text in ("Died", " in", " 1943,"))
    answer = Answer(
        "a",
        None,
        "When?",
        "Died in 1943,",
        True,
        0.9,
        True,
        tokens,
        (),
        (),
        0.5,
        (1,),
        2,
        {},
        Timings(0, 0, 0),
        "m",
        "f",
    )
    assert answer.short == "in 1943"
    assert Answer.from_dict(answer.to_dict()) == answer
    assert replace(answer, tokens=()).short == ""


def test_neighbours_are_added_only_inside_a_document() -> None:
    document_N, ordinal_N = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 2, 0, 1])
    assert with_neighbours(torch.tensor([2]), document_N, ordinal_N).tolist() == [1, 2]
    assert with_neighbours(torch.tensor([3, 0]), document_N, ordinal_N).tolist() == [0, 1, 3, 4]


def test_an_answer_that_the_first_release_stored_is_still_read() -> None:
    """Its body lacks what came later: other sentences, token ids, what is pointed at."""
    box = {"page": 0, "x0": 0.1, "y0": 0.2, "x1": 0.9, "y1": 0.25}
    passage = {
        "document_id": "d", "source": "a.pdf", "title": "A", "pages": [0], "page_labels": ["i"], "start_index": 0,
        "end_index": 3, "text": "Yes", "score": 1, "block_ids": [7],
        "blocks": [{"block_id": 7, "score": 0.5, "start": 0, "end": 3, "boxes": [box]}],
    }  # fmt: skip
    token = {"text": "Yes", "logprob": -0.5, "memory_share": 0.5, "blocks": [[7, 0.5]], "quoted_from": ["d", 0, 3]}
    body = {
        "id": "a", "conversation_id": None, "question": "Is it?", "text": "Yes", "found": True, "confidence": 0.9,
        "quote": True, "tokens": [token], "passages": [passage], "near_misses": [], "memory_share": 0.5, "layers": [1],
        "heads": 2, "heat": {"7": [[0.25, 0.75]]}, "model": "m", "memory": "f",
        "timings": {"search_seconds": 0.1, "first_token_seconds": 0.2, "seconds": 0.3},
        "settings": {"k": 8, "candidates": [7]},
    }  # fmt: skip
    answer = Answer.from_dict(body)
    assert answer.heat == {7: ((0.25, 0.75),)} and answer.tokens[0].blocks == ((7, 0.5),)
    assert answer.tokens[0].quoted_from == ("d", 0, 3) and not answer.tokens[0].pointed
    assert answer.passages[0].blocks[0].boxes[0].page == 1 and answer.passages[0].pages == (1,)
    assert answer.passages[0].total_pages == 0
    assert answer.other_sentences == () and answer.settings == {"k": 8, "candidates": [7]}
    again = answer.to_dict()
    assert {name: again[name] for name in body if name not in ("tokens", "passages")} == {
        name: body[name] for name in body if name not in ("tokens", "passages")
    }
    assert again["format"] == "cairn-answer/2" and Answer.from_dict(again) == answer
    assert Answer.from_dict(body | {"format": "cairn-answer/1"}) == answer, "as the first release exported it"
