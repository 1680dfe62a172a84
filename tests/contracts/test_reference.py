"""The generated pages are what the code says, and every command and option explains itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli import cli
from docs import reference

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", list(reference.PAGES))
def test_a_generated_page_is_current(name: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == reference.PAGES[name](), "run `make docs`"


def test_a_stale_page_is_found_and_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "PAGES", {name: cache(made) for name, made in reference.PAGES.items()})
    assert reference.main([str(tmp_path), "--check"]) == 1
    assert capsys.readouterr().err.count("make docs") == len(reference.PAGES)
    assert reference.main([str(tmp_path)]) == 0
    assert reference.main([str(tmp_path), "--check"]) == 0


def commands(group: Any = None) -> Iterator[tuple[str, Any]]:
    """Name and command of all, those of a group one by one."""
    for name, command in (group or typer.main.get_command(cli)).commands.items():
        if hasattr(command, "commands"):
            yield from ((f"{name} {inner}", each) for inner, each in commands(command))
        else:
            yield name, command


def test_every_command_and_option_has_help() -> None:
    for name, command in commands():
        assert command.help, name
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def test_every_command_takes_json_home_and_model() -> None:
    for name, command in commands():
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--json", "--home", "--model"} <= options, name
