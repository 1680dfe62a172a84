"""Tables in text files: values parted by commas, semicolons or tabs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from retrieval.errors import ExtractError
from retrieval.extraction.document import ExtractedDocument
from retrieval.extraction.encodings import decode
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.markup import clean_text, text_bytes
from retrieval.extraction.office.sheets import Row, Sheet, from_sheets

_SAMPLE_CHARACTERS = 32_768
_DELIMITERS = ",;\t|"
_STATED = re.compile(r"sep=(.)\r?\n")  # the first line, as Excel writes it
LABEL = "the table"


def extract_csv(path: Path, limits: ExtractLimits, password: str | None = None) -> ExtractedDocument:
    """A file of separated values, .csv or .tsv. Raises ExtractError."""
    source, encoding, notes = decode(text_bytes(path, limits))
    csv.field_size_limit(limits.characters)
    sheet = Sheet(LABEL, True, _rows(source), named=True)
    return from_sheets([sheet], "", path, {"encoding": encoding}, limits, list(notes), [])


def _rows(source: str) -> Iterator[Row]:
    stated = _STATED.match(source)
    delimiter = stated[1] if stated else _delimiter(source)
    try:
        plain, skipped = (
            # Other signs that end lines may stand in a cell.
            list(csv.reader(io.StringIO(source, newline=""), delimiter=delimiter, skipinitialspace=skip))
            for skip in (False, True)
        )
        # A quotation mark behind a blank begins a value, unless no other ends it in its row: it may mean inches.
        for number, values in enumerate(skipped if len(skipped) == len(plain) else plain):
            if stated and number == 0:
                continue
            texts = {column: clean_text(value).strip() for column, value in enumerate(values)}
            yield Row(number, {column: text for column, text in texts.items() if text})
    except csv.Error as error:
        raise ExtractError(f"The table cannot be read ({error}). Export it again.") from error


def _delimiter(source: str) -> str:
    """By what the values are parted; a comma where nothing tells."""
    sample = source[:_SAMPLE_CHARACTERS]
    if len(source) > len(sample):
        sample = sample[: sample.rfind("\n") + 1] or sample
    try:
        return csv.Sniffer().sniff(sample, _DELIMITERS).delimiter
    except csv.Error:
        return max(_DELIMITERS, key=sample.count) if any(one in sample for one in _DELIMITERS) else ","
