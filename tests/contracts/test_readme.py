"""What the README tells people to type works, and what it claims is what the code says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

import cairn
from app.cli import cli
from tests.tiny_model import tiny_model

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = [
    line.split("  #")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]
INLINE = [code for code in re.findall(r"`([^`\n]+)`", README) if code.startswith(("cairn ", "make "))]


def commands(program: str) -> list[list[str]]:
    """Everything that the README shows of a program, as words."""
    return [shlex.split(line)[1:] for line in [*SHELL, *INLINE] if line.startswith(program + " ")]


def test_the_readme_opens_with_what_it_is_one_picture_and_the_two_commands() -> None:
    first_part = README.split("\n## ")[0]
    assert first_part.startswith("# Cairn\n") and first_part.count("![") == 1
    assert re.findall(r"^make \w+", first_part, re.MULTILINE) == ["make app", "make test"]


@pytest.mark.parametrize("words", commands("make"), ids=" ".join)
def test_a_documented_make_target_exists(words: list[str]) -> None:
    assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("words", commands("cairn"), ids=" ".join)
def test_a_documented_command_is_understood(words: list[str]) -> None:
    words = words[: words.index(">")] if ">" in words else words
    command = typer.main.get_command(cli).commands[words[0]]  # type: ignore[attr-defined]
    arguments = words[1:] or (["x"] if any(one.required for one in command.params) else [])
    command.make_context(words[0], list(arguments))


@pytest.fixture
def beside_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to type in, with a few reports, and a checkpoint that is read in no time."""
    tiny_model(block_size=16).save(tmp_path / "model")
    monkeypatch.setenv("CAIRN_HOME", str(tmp_path / "water"))
    monkeypatch.setenv("CAIRN_MODEL", str(tmp_path / "model"))
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "dam.txt").write_text("The dam was finished in 1964 and raised in 1981. " * 4)
    monkeypatch.chdir(tmp_path)


def example_of(page: str, *, examples: int = 1) -> dict[str, Any]:
    """What the first of so many Python examples of a page leaves behind."""
    found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) == examples, "another test runs the others: name it there"
    example = found[0]
    names: dict[str, Any] = {}
    exec(compile(example, page, "exec"), names)
    return names


def test_the_python_example_runs(beside_reports: None, capsys: pytest.CaptureFixture[str]) -> None:
    library = example_of("README.md")["library"]
    assert capsys.readouterr().out.strip() and [one.source for one in library.documents.list()] == ["dam.txt"]
    library.close()


def test_the_langchain_example_runs(beside_reports: None) -> None:
    with cairn.open() as memory:
        memory.add("reports")
    names = example_of("docs/langchain.md", examples=2)  # the second: tests/mission/test_attention_decides.py
    assert len(names["documents"]) == 3 and names["chain"].invoke("When?") == "In 1981."
    found = names["tool"].invoke({"args": {"query": "dam"}, "type": "tool_call", "id": "1", "name": "documents"})
    assert found.artifact[0].metadata["bboxes"] is not None
    names["library"].close()


def test_the_readme_is_a_first_screen() -> None:
    assert len(README.splitlines()) <= 120


def test_settings_that_the_readme_names_exist() -> None:
    known = (ROOT / "docs" / "settings.md").read_text()
    assert all(name in known for name in re.findall(r"CAIRN_[A-Z_]+", README))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "#", "mailto:")):
            assert (path.parent / target.split("#")[0]).exists(), f"{path.name} links to {target}"


def test_every_top_level_folder_is_explained() -> None:
    tree = README.split("```text\n")[-1].split("```")[0]
    for folder in ("app", "retrieval", "model", "storage", "research", "tests", "benchmarks", "docs"):
        assert (ROOT / folder).is_dir() and re.search(rf"^{folder}/ +\w", tree, re.MULTILINE), folder


def test_every_decision_is_listed_with_status_context_choice_and_what_speaks_for_it() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    for page in sorted(folder.glob("0*.md")):
        text = page.read_text()
        assert "**Context" in text and "**Choice" in text, page.name
        assert re.search(r"\*\*(Reason|Measured|What decides)", text), page.name
        head = re.match(r"# \d{4} (.+)\n\n\*\*Status:\*\* ((?:accepted|proposed|superseded), 20\d\d-\d\d-\d\d)", text)
        assert head, page.name
        assert f"| [{page.name[:4]}]({page.name}) | {head[1]} | {head[2]} |" in index, page.name


def test_decisions_that_amend_each_other_say_so_on_both_sides() -> None:
    named = set()
    for page in (ROOT / "docs" / "decisions").glob("0*.md"):
        status = page.read_text().split("**Status:**")[1].split("\n\n")[0]
        named |= {(page.name[:4], other) for other in re.findall(r"\b(0\d{3})\b", re.sub(r"\(.*?\)", "", status))}
    assert named == {(other, one) for one, other in named} and named
