"""Two readers: what is read again, how their probabilities are put together, and their files."""

from pathlib import Path

import pytest

from model.errors import ModelError
from model.reading import two_readers
from model.reading.ranker import reader_digest
from model.reading.span_reader import FOLDER, ReadPassage, SpanReader
from model.reading.two_readers import TwoReaders, load_reader
from research.train.recipes.rounding import save_reader
from tests.model.reading.test_span_reader import passage, pointing_at
from tests.tiny_reader import tiny_reader


class Noting:
    """Notes how many rows each reader is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[SpanReader, int]] = []

    def __call__(self, reader: SpanReader, rows):
        self.rows.append((reader, rows.ids_QKT.shape[1]))
        return reader.points([rows])[0]


def probabilities(reading) -> list[list[float]]:
    return [[span.probability for span in spans] for spans in reading.spans]


def test_what_both_find_likely_wins() -> None:
    texts = ["Ada lives in Rome. Bert lives in Oslo.", "Both like cairns. Ada and Bert."]
    first, second = (tiny_reader([*texts, "where", name]) for name in ("first", "second"))  # of other weights
    alone = [sum(probabilities(each.read("where", list(map(passage, texts)))), []) for each in (first, second)]
    both = sum(probabilities(TwoReaders(first, second).read("where", list(map(passage, texts)))), [])
    means = [(one * other) ** 0.5 for one, other in zip(*alone, strict=True)]
    assert alone[0] != alone[1]
    assert [one / sum(both) for one in both] == pytest.approx([one / sum(means) for one in means])


def test_probabilities_sum_to_one_with_none() -> None:
    reading = TwoReaders(tiny_reader(["a b. c d."]), tiny_reader(["a b. c d."])).read("where", [passage(), passage()])
    assert sum(map(sum, probabilities(reading))) + reading.p_none == pytest.approx(1.0)


def test_only_windows_of_likely_sentences_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_readers, "READ_AGAIN", 1)
    two, noting = TwoReaders(pointing_at("oslo"), pointing_at("oslo")), Noting()
    others = [passage("No word of it. None.")] * 3
    reading = two.read("where does bert live", [*others, passage()], noting)
    assert noting.rows == [(two.first, 4), (two.second, 1)]
    best = max((span for spans in reading.spans for span in spans), key=lambda span: span.probability)
    assert best is reading.spans[3][1] and best.probability > 0.99


def test_the_words_are_those_of_the_surer_reader() -> None:
    two = TwoReaders(tiny_reader(["ada lives in rome."]), pointing_at("rome"))
    span = two.read("where", [passage()]).spans[0][0]
    assert passage().text[span.start : span.stop] == "Rome"


def test_nothing_to_read_is_not_here() -> None:
    two = TwoReaders(pointing_at("oslo"), pointing_at("oslo"))
    assert two.read("who", []).p_none == 1.0
    assert two.read("who", [ReadPassage("", "", [])]).p_none == 1.0


def test_the_second_lies_in_the_folder_of_the_first(tmp_path: Path) -> None:
    save_reader(tiny_reader(["a b"]), tmp_path)
    assert isinstance(load_reader(tmp_path / FOLDER), SpanReader)
    alone = reader_digest(tmp_path / FOLDER)
    save_reader(tiny_reader(["c d"]), tmp_path / "other")
    (tmp_path / "other" / FOLDER).rename(tmp_path / FOLDER / "second")
    two = load_reader(tmp_path / FOLDER)
    assert isinstance(two, TwoReaders) and two.second.tokenizer.token_to_id("c") is not None
    assert reader_digest(tmp_path / FOLDER) != alone
    (tmp_path / FOLDER / "second" / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="second"):
        load_reader(tmp_path / FOLDER)
