"""The public interface in Python, and the examples over it alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.language_models import FakeListChatModel

import cairn
from tests.tiny_model import tiny_model

ROOT = Path(__file__).resolve().parents[1]
TEXT = "The dam was finished in 1964 and raised in 1981. The spillway is maintained every spring. " * 4


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cairn.Library]:
    folder = tmp_path_factory.mktemp("front")
    tiny_model(block_size=16).save(folder / "model")
    (folder / "reports").mkdir()
    (folder / "reports" / "dam.txt").write_text(TEXT)
    with cairn.open(folder / "home", model=str(folder / "model")) as opened:
        assert [one.source for one in opened.add(folder / "reports")] == ["dam.txt"]
        yield opened


def test_what_was_added_is_searched_asked_and_listed(library: cairn.Library, tmp_path: Path) -> None:
    assert library.add(tmp_path) == [] and [one.source for one in library.documents.list()] == ["dam.txt"]
    assert "spillway" in library.search("the spillway is maintained", k=1)[0].text
    answer = library.ask("When was the dam raised?")
    assert isinstance(answer, cairn.Answer) and (answer.passages or answer.near_misses)
    *_, streamed = library.stream("When was the dam raised?")
    assert streamed.text == answer.text


def test_what_cannot_be_read_or_asked_says_so(library: cairn.Library, tmp_path: Path) -> None:
    (tmp_path / "song.mp3").write_bytes(b"ID3")
    with pytest.raises(cairn.ExtractError, match="cannot be read"):
        library.add(tmp_path / "song.mp3")
    with pytest.raises(cairn.InvalidRequest):
        library.ask(" ")
    for taken in (library.add, cairn.open):
        with pytest.raises(cairn.InvalidRequest, match="The path is empty"):
            taken("")


def test_the_chat_example_marks_what_the_answer_rests_on(library: cairn.Library) -> None:
    from examples import chat  # here: importing Gradio takes seconds

    assert chat.build(library) is not None
    parts = chat.marked(library.ask("When was the dam raised?"))
    assert parts[0][1] == "source" and "dam" in "".join(text for text, _ in parts)


def test_the_chain_example_answers_in_the_words_of_its_model(library: cairn.Library) -> None:
    from examples import chain

    assert chain.chain_of(library, FakeListChatModel(responses=["In 1981."])).invoke("When?") == "In 1981."


def test_the_former_name_of_an_open_library_warns() -> None:
    with pytest.deprecated_call():
        assert cairn.Memory is cairn.Library


def test_importing_costs_no_model_and_no_web() -> None:
    code = "import sys, cairn; print(any(name in sys.modules for name in ('torch', 'gradio', 'transformers')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
