"""Sentences quoted from stored keys alone: each with its place, none replayed through the model."""

from __future__ import annotations

from tests.retrieval.conftest import TEXTS, add, ask
from tests.retrieval.pdf_maker import Sheet, make_pdf
from tests.tiny_model import tiny_model


def test_a_quoted_sentence_stands_in_the_first_passage_and_attention_takes_no_part(open_library, write):
    model = tiny_model(block_size=64, ranks_by_tokens=True, answers="quoted", quotes_sentences=True)
    library = open_library(model=model)
    for name, text in TEXTS.items():
        add(library, write(f"{name}.txt", text))
    for question in ("What do whales do?", "Where does rain fall?", "Who built it?"):
        answer = ask(library, question, max_tokens=128)
        assert (answer.decided_by, answer.short, answer.memory_share) == ("search", "", 0.0)
        assert not answer.heat and not answer.layers and all(token.logprob is None for token in answer.tokens)
        (document_id, start, _), *_ = [token.quoted_from for token in answer.tokens if token.quoted_from]
        first = answer.passages[0]
        assert first.document_id == document_id and first.start_index <= start < first.end_index
        assert answer.other_sentences and library.answers.get(answer.id) == answer
        said = {answer.text, *(other.passage.text for other in answer.other_sentences)}
        assert len(said) == 1 + len(answer.other_sentences), "every sentence once"
        for other in answer.other_sentences:
            passage = other.passage
            text = TEXTS[passage.source.removesuffix(".txt")]
            assert text[passage.start_index : passage.end_index] == passage.text.strip()
            assert 0 <= passage.score <= 1
            assert passage.blocks[0].start <= passage.start_index < passage.end_index <= passage.blocks[-1].end


def test_a_sentence_is_shown_on_its_own_page_where_its_block_begins_on_the_one_before(open_library, tmp_path):
    said = ("The fox sleeps in the den.", "The wolf hunts at night.", "The bear eats fish at noon.")
    sheets = [Sheet([(72, 700, 12, text)]) for text in said]
    path = tmp_path / "animals.pdf"
    path.write_bytes(make_pdf(sheets))
    model = tiny_model(block_size=64, ranks_by_tokens=True, answers="quoted", quotes_sentences=True)
    library = open_library(model=model)
    document = add(library, path)
    across = [block for page in (1, 2, 3) for block in library.documents.page_text(document, page).blocks]
    assert any(len({box.page for box in block.boxes}) > 1 for block in across)
    answer = ask(library, "What does the wolf do?", max_tokens=128)
    assert {answer.text, *(other.passage.text for other in answer.other_sentences)} == set(said)
    for other in answer.other_sentences:
        page = 1 + said.index(other.passage.text)
        assert other.passage.pages == (page,) and {box.page for box in other.passage.boxes} == {page}
        assert "".join(other.parts) == other.passage.text


def test_a_row_longer_than_the_blocks_that_search_read_is_quoted_whole_with_all_its_blocks(open_library, write):
    model = tiny_model(block_size=16, ranks_by_tokens=True, answers="quoted", quotes_sentences=True)
    library = open_library(model=model)
    rows = [f"Ship: {name}; Week: {week}; Port: Kobe; Voyage: {week}N." for week in (27, 29) for name in ("Ash", "Oak")]
    add(library, write("ships.txt", "".join(f"{row}\nOn time.\n" for row in rows)))
    answer = ask(library, "Which voyage of the Oak?", k=2, max_tokens=128)
    beside = [other.passage for other in answer.other_sentences]
    said = [answer.text, *(one.text for one in beside)]
    assert len(set(said) & set(rows)) >= 2, said
    assert all(one.blocks[0].start <= one.start_index < one.end_index <= one.blocks[-1].end for one in beside)
