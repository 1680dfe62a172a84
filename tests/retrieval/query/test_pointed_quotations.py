"""Quotations that a head for answer spans points at."""

from __future__ import annotations

import torch

from model.scoring.span_head import SpanHead
from model.scoring.span_selection import span_head_logits
from retrieval.query.quotation import sentence_search
from tests.retrieval.conftest import FOX, TEXTS, add, ask
from tests.retrieval.pdf_maker import Sheet, make_pdf
from tests.tiny_model import ONE_LAYER, tiny_model


def test_a_quoted_sentence_points_somewhere_in_itself_and_its_passage_comes_first(open_library, write):
    model = tiny_model(block_size=64, ranks_by_tokens=True, quotes=True, quotes_sentences=True, points_at_answers=True)
    library = open_library(model=model)
    for name, text in TEXTS.items():
        add(library, write(f"{name}.txt", text))
    for question in ("What do whales do?", "Where does rain fall?", "Who built it?"):
        answer = ask(library, question, max_tokens=128)
        assert answer.short and answer.short in answer.text
        (document_id, start, _), *_ = [token.quoted_from for token in answer.tokens if token.quoted_from]
        first = answer.passages[0]
        assert first.document_id == document_id and first.start_index <= start < first.end_index
        assert answer.other_sentences and library.answer(answer.id) == answer
        said = {answer.text, *(other.passage.text for other in answer.other_sentences)}
        assert len(said) == 1 + len(answer.other_sentences), "every sentence once"
        for other in answer.other_sentences:
            passage = other.passage
            text = TEXTS[passage.source.removesuffix(".txt")]
            assert text[passage.start_index : passage.end_index] == passage.text.strip()
            assert other.short and other.short in passage.text and 0 <= passage.score <= 1
            assert passage.blocks[0].start <= passage.start_index < passage.end_index <= passage.blocks[-1].end


def test_the_head_sees_keys_and_queries_laid_end_to_end_as_in_training():
    torch.manual_seed(0)
    head = SpanHead(2 * 3 * 4, 8, 1).eval()
    keys_WCGLD, lengths_C = [torch.randn(5, 3, 6, 4).bfloat16() for _ in range(2)], torch.tensor([5, 5, 2, 5, 1])
    queries_QWGD, pointers_2WGD = torch.randn(4, 2, 3, 4), torch.randn(2, 2, 3, 4)
    found_2CL = span_head_logits(head, queries_QWGD, pointers_2WGD, keys_WCGLD, lengths_C)
    keys_CLE = torch.zeros(5, 6, 24)
    for layer in range(2):
        for group in range(3):
            at = 12 * layer + 4 * group
            keys_CLE[..., at : at + 4] = keys_WCGLD[layer][:, group].float()
    there_CL = torch.arange(6) < lengths_C[:, None]
    asked = torch.ones(1, 4, dtype=torch.bool)
    wanted, _ = head(
        keys_CLE[None], there_CL[None], queries_QWGD.flatten(1)[None], asked, pointers_2WGD.flatten(1)[None]
    )
    torch.testing.assert_close(found_2CL, wanted[0].detach())


def test_a_model_with_a_head_quotes_what_its_head_points_at(open_library, write, monkeypatch):
    plain = tiny_model(
        block_size=64, ranks_by_tokens=True, search_weights=ONE_LAYER, quotes=True, quotes_sentences=True,
        points_at_answers=True,
    )  # fmt: skip
    torch.manual_seed(0)
    library = open_library(model=plain.with_span_head(SpanHead(2 * 16, 8, 1).eval()))
    add(library, write("fox.txt", FOX))
    word = FOX.split()[12]
    wanted = FOX.index(word)

    def pointing(head, queries, pointers, keys, lengths):
        points_2CL = torch.zeros(2, *keys[0].shape[:1], 64)
        points_2CL[0].view(-1)[wanted // 63 * 64 + wanted % 63] = 50.0
        last = wanted + len(word) - 1
        points_2CL[1].view(-1)[last // 63 * 64 + last % 63] = 50.0
        return points_2CL.masked_fill(torch.arange(64) >= lengths[:, None], -torch.inf)

    monkeypatch.setattr(sentence_search, "span_head_logits", pointing)
    assert ask(library, "What does the fox do?", max_tokens=200, k=50).short == word.strip(".,")


def test_a_sentence_is_shown_on_its_own_page_where_its_block_begins_on_the_one_before(open_library, tmp_path):
    said = ("The fox sleeps in the den.", "The wolf hunts at night.", "The bear eats fish at noon.")
    sheets = [Sheet([(72, 700, 12, text)]) for text in said]
    path = tmp_path / "animals.pdf"
    path.write_bytes(make_pdf(sheets))
    model = tiny_model(block_size=64, ranks_by_tokens=True, quotes=True, quotes_sentences=True, points_at_answers=True)
    library = open_library(model=model)
    document = add(library, path)
    across = [block for page in (1, 2, 3) for block in library.page_text(document, page).blocks]
    assert any(len({box.page for box in block.boxes}) > 1 for block in across)
    answer = ask(library, "What does the wolf do?", max_tokens=128)
    assert {answer.text, *(other.passage.text for other in answer.other_sentences)} == set(said)
    for other in answer.other_sentences:
        page = 1 + said.index(other.passage.text)
        assert other.passage.pages == (page,) and {box.page for box in other.passage.boxes} == {page}
        assert "".join(other.parts) == other.passage.text and other.short in other.parts[1]
