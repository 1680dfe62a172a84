"""The span reader: rows, windows, where answers are found, and its files."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from model.errors import ModelError
from model.reading import span_reader
from model.reading.network import JointReader, SpanLogits
from model.reading.rows import JointRows, RowTokens, join_rows
from model.reading.span_reader import FOLDER, WINDOW, ReadPassage, SpanReader, load_span_reader, sentence_mass
from research.train.recipes.rounding import save_reader
from tests.tiny_reader import tiny_reader, word_tokenizer

TEXT = "Ada lives in Rome. Bert lives in Oslo. Both like cairns."


def passage(text: str = TEXT, title: str = "People") -> ReadPassage:
    borders, start = [], 0
    for sentence in text.split(". "):
        borders.append((start, min(len(text), start + len(sentence) + 1)))
        start += len(sentence) + 2
    return ReadPassage(title, text, borders)


class PointsAt(JointReader):
    """Sees the word with the given id, and nothing else."""

    wanted = 0

    def read(self, ids_RT, segment_RT, valid_RT) -> torch.Tensor:
        points_RT = 20.0 * (ids_RT == self.wanted)
        return torch.stack((points_RT, points_RT), -1)


def pointing_at(word: str) -> SpanReader:
    reader = tiny_reader([TEXT])
    network = PointsAt(reader.network.config)
    network.wanted = reader.tokenizer.token_to_id(word)
    return SpanReader(network.eval(), reader.tokenizer)


def test_a_row_is_the_question_then_title_and_passage() -> None:
    tokenizer = word_tokenizer(["who lives here", "people", TEXT])
    rows = join_rows([([7, 8], [9], [10, 11]), ([7, 8], [], [12])], 2, RowTokens.of(tokenizer))
    pad, first, separator, colon = (tokenizer.token_to_id(token) for token in ("[PAD]", "[CLS]", "[SEP]", ":"))
    assert rows.ids_QKT[0].tolist() == [
        [first, 7, 8, separator, 9, colon, 10, 11, separator],
        [first, 7, 8, separator, 12, separator, pad, pad, pad],
    ]
    assert rows.segment_QKT[0, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert rows.passage_QKT[0].nonzero().tolist() == [[0, 6], [0, 7], [1, 4]]
    assert rows.valid_QKT[0].sum(-1).tolist() == [9, 6]


def test_a_tokenizer_without_the_tokens_of_bert_is_refused() -> None:
    from tokenizers.models import WordLevel

    with pytest.raises(ValueError, match="tokens of BERT"):
        RowTokens.of(Tokenizer(WordLevel({"a": 0}, unk_token="a")))


def test_the_sentence_and_the_words_are_found() -> None:
    reading = pointing_at("oslo").read("where does bert live", [passage("No word of it. None."), passage()])
    best = max((span for spans in reading.spans for span in spans), key=lambda span: span.probability)
    assert best is reading.spans[1][1]
    assert TEXT[best.start : best.stop] == "Oslo"
    assert best.probability > 0.99
    assert reading.p_none < 0.01


def test_the_words_have_no_white_space_around_them_and_no_comma_behind() -> None:
    assert span_reader._of_whole_words("was Martha Lindqvist, who", 3, 21) == (4, 20)
    assert span_reader._of_whole_words("a: b", 1, 2) == (1, 2)
    assert span_reader._of_whole_words("a b", 1, 2) == (1, 1)


@pytest.mark.parametrize(
    ("text", "pieces", "words"),
    [
        ("The Housing data", "sing da", "Housing data"),
        ("The Housing data", "Hou", "Housing"),
        ("a B2-level, of 20mg", "evel, of 20", "level, of 20mg"),
        ("Bäckereien", "ckerei", "Bäckereien"),
        ("यह हिन्दी है", "हिन", "हिन्दी"),
        ("東京都の人口です", "東京都", "東京都"),
        ("カメラを買う", "カメラ", "カメラ"),
        ("อยู่ที่กรุงเทพ", "กรุงเทพ", "กรุงเทพ"),
        ("수도는 서울은", "서울", "서울"),
        ("约Python3的", "thon", "Python3"),
        ("این کتاب\u200cها", "کتاب", "کتاب\u200cها"),
        ("the Hou\u00adsing data", "sing", "Hou\u00adsing"),
        ("returns BZ_OK.", "OK", "BZ_OK"),
        ("აქ საქართველოა", "ქართველ", "საქართველოა"),
    ],
)
def test_the_words_are_whole_where_spaces_part_them(text: str, pieces: str, words: str) -> None:
    start = text.index(pieces)
    first, last = span_reader._of_whole_words(text, start, start + len(pieces))
    assert text[first:last] == words


def test_what_stands_nowhere_is_not_here() -> None:
    reading = pointing_at("[PAD]").read("where does bert live", [passage("No word of it. None.")])
    evenly = pointing_at("rome").read("where does bert live", [passage()])
    assert reading.p_none > evenly.p_none


def test_a_long_passage_is_read_in_windows_and_every_sentence_has_a_chance() -> None:
    text = " ".join(f"Person {number} lives in a house beside the sea." for number in range(60))
    reader = tiny_reader([text])
    reading = reader.read("who lives there", [passage(text)])
    assert len(reader.tokenizer.encode(text).ids) > 2 * WINDOW
    assert len(reading.spans[0]) == 60
    assert all(span.probability > 0 and text[span.start : span.stop] for span in reading.spans[0])


def test_chances_compare_passages_whatever_stands_beside_them() -> None:
    """Padding and other rows do not change how two sentences compare."""
    reader = tiny_reader([TEXT, "No word of it. None."])
    alone = reader.read("where does bert live", [passage()]).spans[0]
    beside = reader.read("where does bert live", [passage("No word of it. None. " * 20), passage()]).spans[1]
    ratios = torch.tensor([a.probability for a in alone]) / torch.tensor([b.probability for b in beside])
    torch.testing.assert_close(ratios, ratios.mean().expand(3), rtol=1e-4, atol=0)
    assert [span[1:] for span in alone] == [span[1:] for span in beside]


def test_nothing_to_read_is_not_here() -> None:
    assert tiny_reader([TEXT]).read("who", []).p_none == 1.0
    assert tiny_reader([TEXT]).read("who", [ReadPassage("", "", [])]).p_none == 1.0


def test_the_files_give_the_same_reading(tmp_path: Path) -> None:
    reader = tiny_reader([TEXT])
    save_reader(reader, tmp_path)
    before, after = (
        each.read("where does bert live", [passage()]) for each in (reader, load_span_reader(tmp_path / FOLDER))
    )
    assert [span.probability for span in after.spans[0]] == pytest.approx(
        [s.probability for s in before.spans[0]], rel=0.05
    )


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_damaged_and_missing_files_are_named(tmp_path: Path, name: str) -> None:
    save_reader(tiny_reader([TEXT]), tmp_path)
    file = tmp_path / FOLDER / name
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(ModelError, match="copied again|copy the checkpoint again"):
        load_span_reader(tmp_path / FOLDER)
    file.unlink()
    with pytest.raises(ModelError, match="copied again|copy the checkpoint again"):
        load_span_reader(tmp_path / FOLDER)


def test_a_question_is_read_the_same_however_many_are_read_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = tiny_reader([TEXT])
    passages = [passage(), passage(TEXT * 4), passage("Ada lives in Rome. "), passage(TEXT * 3, "Places")]
    alone = reader.read("Where does Ada live?", passages)
    others: list[JointRows] = []
    reader.read("Who lives in Paris?", passages[:2], lambda _, rows: others.append(rows) or reader.points([rows])[0])
    for most in (span_reader.MOST_TOKENS, 100, 1):  # of a pass
        monkeypatch.setattr(span_reader, "MOST_TOKENS", most)
        among = reader.read(
            "Where does Ada live?", passages, lambda _, rows: reader.points([*others, rows, *others])[1]
        )
        assert among == alone


def test_a_row_stands_alone_as_the_encoder_itself_has_it() -> None:
    network = tiny_reader([TEXT]).network
    ids_RT = torch.tensor([[1, 7, 8, 2, 9], [1, 7, 2, 0, 0]])
    valid_RT = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    with torch.inference_mode():
        points_RT2 = network.read(ids_RT, torch.zeros_like(ids_RT), valid_RT)
        network.encoder.set_attn_implementation("eager")
        plain_RT2 = network.points(network.encoder(input_ids=ids_RT, attention_mask=valid_RT.long()).last_hidden_state)
    torch.testing.assert_close(points_RT2[valid_RT], plain_RT2[valid_RT])
    assert not points_RT2[~valid_RT].any()


def test_the_mass_of_a_sentence_is_that_of_the_spans_within_it() -> None:
    torch.manual_seed(4)
    logits = SpanLogits(torch.randn(2, 8), torch.randn(2, 8))
    sentence = torch.tensor([[0, 0, 0, 1, 1, -1, 2], [0, 1, 1, 1, -1, -1, -1]])
    mass = sentence_mass(logits, sentence, longest=2)
    starts, ends = (each.softmax(-1) for each in logits)
    for question in range(2):
        for number in range(3):
            expected = sum(
                float(starts[question, first] * ends[question, last])
                for first in range(7)
                for last in range(first, min(7, first + 2))
                if sentence[question, first] == number and sentence[question, last] == number
            )
            assert float(mass[question, number]) == pytest.approx(expected)
