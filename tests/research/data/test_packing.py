import gzip
import json
import lzma
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.attention.block_grid import insert_landmarks
from research.train.data.documents import open_token_file, read_documents, write_token_file
from research.train.data.packing import IGNORED, Grid, StreamedRows, TokenRows, pack

LANDMARK, EOS = 99, 98


@given(st.integers(2, 9), st.integers(2, 40), st.booleans())
def test_landmarks_stand_where_the_block_grid_puts_them(block_size: int, raw_tokens: int, at_end: bool) -> None:
    raw = list(range(raw_tokens))
    grid = Grid(raw_tokens, block_size, LANDMARK, landmark_at_end=at_end)
    wanted = insert_landmarks(raw, block_size=block_size, landmark_token_id=LANDMARK)
    if not at_end and wanted[-1] == LANDMARK:
        wanted.pop()
    assert pack(np.array([raw]), grid).ids_BT[0].tolist() == wanted


def test_the_published_row_has_512_raw_tokens_10_landmarks_and_an_unfinished_block() -> None:
    rows = pack(np.arange(512)[None] + 1000, Grid(512, 51, LANDMARK))
    assert rows.ids_BT.shape == (1, 522)
    assert int((rows.ids_BT == LANDMARK).sum()) == 10
    assert rows.ids_BT[0, 509].item() == LANDMARK


def test_all_targets_are_the_next_token_with_landmarks() -> None:
    rows = pack(np.array([[1, 2, 3, 4, 5]]), Grid(5, 3, LANDMARK, "all"))
    assert rows.ids_BT[0].tolist() == [1, 2, LANDMARK, 3, 4, LANDMARK, 5]
    assert rows.targets_BT[0].tolist() == [2, LANDMARK, 3, 4, LANDMARK, 5, IGNORED]
    assert rows.num_targets == 6


def test_skipping_landmarks_trains_every_raw_token_but_the_first_once() -> None:
    rows = pack(np.array([[1, 2, 3, 4]]), Grid(4, 3, LANDMARK, "skip-landmarks", landmark_at_end=True))
    assert rows.ids_BT[0].tolist() == [1, 2, LANDMARK, 3, 4, LANDMARK]
    assert rows.targets_BT[0].tolist() == [2, 3, IGNORED, 4, IGNORED, IGNORED]


def test_in_lm_benchmark_style_an_end_of_text_predicts_nothing() -> None:
    rows = pack(np.array([[1, EOS, 3, 4]]), Grid(4, 3, LANDMARK, "lm-benchmark", eos_token_id=EOS))
    assert rows.ids_BT[0].tolist() == [1, EOS, LANDMARK, 3, 4]
    assert rows.targets_BT[0].tolist() == [EOS, IGNORED, IGNORED, 4, IGNORED]


def test_a_text_with_a_landmark_in_it_is_refused() -> None:
    with pytest.raises(ValueError, match="landmark"):
        pack(np.array([[1, LANDMARK, 3]]), Grid(3, 3, LANDMARK))


def test_token_rows_draw_every_row_once_an_epoch_in_a_new_order() -> None:
    rows = TokenRows(np.arange(90), Grid(10, 100, 1000), rows=3, seed=7)
    first, second = (torch.cat([b.ids_BT for b in islice(iter(rows), 3)])[:, 0].tolist() for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(0, 90, 10))
    assert first != second


def test_rows_of_a_token_array_go_on_where_they_stood() -> None:
    def fresh() -> TokenRows:
        return TokenRows(np.arange(1000), Grid(10, 6, 5000), rows=7, seed=1)

    whole = [batch.ids_BT for batch in islice(iter(fresh()), 30)]
    part, resumed = fresh(), fresh()
    list(islice(iter(part), 13))
    resumed.load_state(json.loads(json.dumps(part.state())))
    rest = [batch.ids_BT for batch in islice(iter(resumed), 17)]
    assert all(torch.equal(a, b) for a, b in zip(whole[13:], rest, strict=True))


def text_files(folder: Path) -> list[Path]:
    texts = [f"document {number} " + "word " * (number * 7 % 23) for number in range(12)]
    plain, packed = folder / "a.jsonl", folder / "b.jsonl.xz"
    plain.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts[:7]))
    with lzma.open(packed, "wt") as out:
        out.write("".join(json.dumps({"text": text}) + "\n" for text in texts[7:]))
    return [plain, packed]


def test_streamed_rows_are_the_documents_joined_by_end_of_text(tmp_path: Path) -> None:
    files = text_files(tmp_path)
    texts = [text for file in files for text in read_documents(file)]
    stream = b"".join(text.encode() + bytes([0]) for text in texts)
    rows = StreamedRows(files, lambda text: text.encode(), Grid(16, 100, 300), rows=2, eos_token_id=0)
    count = len(stream) // 32
    drawn = torch.cat([batch.ids_BT.flatten() for batch in islice(iter(rows), count)])
    assert bytes(drawn.tolist()) == stream[: count * 32]


@pytest.mark.parametrize("stop", [1, 2, 5, 11, 40])
def test_streamed_rows_go_on_where_they_stood(tmp_path: Path, stop: int) -> None:
    files = text_files(tmp_path)

    def fresh() -> StreamedRows:
        return StreamedRows(files, lambda text: text.encode(), Grid(16, 5, 300), rows=1, eos_token_id=0)

    whole = [batch.ids_BT for batch in islice(iter(fresh()), 60)]
    part, resumed = fresh(), fresh()
    list(islice(iter(part), stop))
    resumed.load_state(json.loads(json.dumps(part.state())))
    rest = [batch.ids_BT for batch in islice(iter(resumed), 60 - stop)]
    assert all(torch.equal(a, b) for a, b in zip(whole[stop:], rest, strict=True))


@pytest.mark.parametrize("stop", [1, 3, 6, 9])
def test_a_single_long_document_goes_on_where_it_stood(tmp_path: Path, stop: int) -> None:
    (tmp_path / "book.txt").write_text("all of it in one document " * 4)

    def fresh() -> StreamedRows:
        files = [tmp_path / "book.txt"]
        return StreamedRows(files, lambda text: text.encode(), Grid(16, 5, 300), rows=1, eos_token_id=0)

    whole = [batch.ids_BT for batch in islice(iter(fresh()), 20)]
    part, resumed = fresh(), fresh()
    list(islice(iter(part), stop))
    resumed.load_state(json.loads(json.dumps(part.state())))
    rest = [batch.ids_BT for batch in islice(iter(resumed), 20 - stop)]
    assert all(torch.equal(a, b) for a, b in zip(whole[stop:], rest, strict=True))


def test_files_without_documents_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    files = [tmp_path / "empty.jsonl"] * 2
    with pytest.raises(ValueError, match="no documents"):
        next(iter(StreamedRows(files, lambda text: text.encode(), Grid(16, 5, 300), rows=1, eos_token_id=0)))


def test_a_token_file_holds_the_documents_and_notices_a_cut(tmp_path: Path) -> None:
    file = tmp_path / "tokens.bin"
    count = write_token_file(file, ["ab", "c"], lambda text: text.encode(), vocab_size=300, eos_token_id=0)
    assert count == 5
    assert open_token_file(file).tolist() == [97, 98, 0, 99, 0]
    file.write_bytes(file.read_bytes()[:-2])
    with pytest.raises(ValueError, match="write it anew"):
        open_token_file(file)


def test_an_unknown_kind_of_text_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="convert it first"):
        next(read_documents(tmp_path / "book.epub"))


def test_pg_19_is_a_folder_of_texts_and_proof_pile_lines_that_say_where_they_are_from(tmp_path: Path) -> None:
    books = tmp_path / "train"
    books.mkdir()
    for number, text in ((2, "second"), (1, "first")):
        (books / f"{number}.txt").write_text(text)
    (books / "metadata.csv").write_text("1,2")
    assert list(read_documents(books)) == ["first", "second"]
    lines = [
        {"text": "a proof", "meta": json.dumps({"config": "formal"})},
        {"text": "a paper", "meta": json.dumps({"config": "arxiv"})},
        {"text": "another", "meta": {"config": "arxiv"}},
        {"text": "of nowhere"},
    ]
    pile = tmp_path / "proofpile_train_0.jsonl.gz"
    with gzip.open(pile, "wt") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
    assert list(read_documents(pile, "arxiv")) == ["a paper", "another"]
    assert len(list(read_documents(pile))) == 4
