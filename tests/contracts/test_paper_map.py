"""docs/paper-map.md: every function and test that it names exists, so that the map cannot lead astray."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = sorted(
    set(
        re.findall(r"`((?:model|retrieval|storage|tests)/[\w/.]*(?:::\w+)?)`", (ROOT / "docs/paper-map.md").read_text())
    )
)


def test_the_map_is_not_empty() -> None:
    assert len(PLACES) > 20


@pytest.mark.parametrize("place", PLACES)
def test_a_place_on_the_map_exists(place: str) -> None:
    path, _, name = place.partition("::")
    assert (ROOT / path).exists()
    if name:
        body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        assert name in {node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
