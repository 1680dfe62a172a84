"""What tests say to the command line, and how they read what it says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from app.cli import cli
from app.settings import Settings


@dataclass
class Commands:
    """The settings that every command opened its library with, and how many closed it again."""

    home: Path
    opened: list[Settings] = field(default_factory=list)
    closed: int = 0


def cairn(*words: object, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], input=input)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
