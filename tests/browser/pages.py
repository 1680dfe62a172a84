"""What stands on a page of a PDF, as PDFium sees it."""

from __future__ import annotations

import re
from pathlib import Path

import pypdfium2


def text_under(pdf: Path, page: int, left: float, top: float, right: float, bottom: float) -> str:
    """What PDFium finds in a box, given in fractions of a page (from 1); characters count by their centres."""
    document = pypdfium2.PdfDocument(pdf)
    sheet = document[page - 1]
    width, height = sheet.get_size()
    words = sheet.get_textpage()
    found = ""
    for index in range(words.count_chars()):
        x0, y0, x1, y1 = words.get_charbox(index)
        x, y = (x0 + x1) / 2 / width, 1 - (y0 + y1) / 2 / height
        if left <= x <= right and top <= y <= bottom:
            found += words.get_text_range(index, 1)
    return found


def squeezed(text: str) -> str:
    return re.sub(r"\s|-", "", text)
