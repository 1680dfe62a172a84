"""Tables of the ICDAR 2013 competition stay as well read as they are: which neighbours each cell has."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import mean

import pytest

from benchmarks.extraction.tables import f_of, relations, tables_of

FOLDER = Path(__file__).parent / "data" / "tables"
KNOWN = json.loads((FOLDER / "cells.json").read_text(encoding="utf-8"))["docs"]
LEAST = {"us-003": 0.9, "us-009": 0.79, "us-026": 0.97, "us-033": 0.98, "us-034": 0.97, "us-037": 0.92}
"""F of a document; all others are read without a fault."""


@pytest.fixture(scope="module")
def scores() -> dict[str, float]:
    found = {each["doc"]: tables_of(FOLDER / f"{each['doc']}.pdf") for each in KNOWN}
    return {
        each["doc"]: f_of(Counter(one for table in found[each["doc"]] for one in table), each["tables"])
        for each in KNOWN
    }


@pytest.mark.parametrize("name", [each["doc"] for each in KNOWN])
def test_a_table_is_read_as_well_as_it_was(scores, name):
    assert scores[name] >= LEAST.get(name, 1.0)


def test_all_together_are_read_as_well_as_they_were(scores):
    assert mean(scores.values()) >= 0.95


def test_what_is_missed_costs():
    (table,) = (each["tables"][0] for each in KNOWN if each["doc"] == "us-003")
    cells = table["cells"]
    assert f_of(Counter(relations(table["page"], cells)), [table]) == 1
    assert f_of(Counter(relations(table["page"], cells[1:])), [table]) < 1
    assert f_of(Counter(), [table]) == 0
