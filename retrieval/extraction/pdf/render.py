"""Images of PDF pages. Runs inside the worker process only."""

from __future__ import annotations

import io
from pathlib import Path

import pypdfium2 as pdfium

from retrieval.errors import ExtractError
from retrieval.extraction.limits import ExtractLimits
from retrieval.extraction.pdf.opening import opened, page_of


def render_pdf_page(path: Path, page: int, width_px: int, limits: ExtractLimits, password: str | None) -> bytes:
    """One page as PNG, `width_px` wide; narrower where the image would pass `limits.pixels`. Raises ExtractError."""
    with opened(path, password) as document:
        if not 0 <= page < len(document):
            raise ExtractError(f"There is no page {page + 1}: the document has {len(document)} pages.")
        try:
            sheet, _, _ = page_of(document, page)
        except pdfium.PdfiumError as error:
            raise ExtractError(f"Page {page + 1} is damaged and cannot be drawn.") from error
        wide, high = sheet.get_size()
        if wide <= 0 or high <= 0:
            raise ExtractError(f"Page {page + 1} has no size and cannot be drawn.")
        scale = min(width_px / wide, (limits.pixels / (wide * high)) ** 0.5)
        if wide * scale < 1 or high * scale < 1:
            raise ExtractError(f"Page {page + 1} measures {wide:.0f} x {high:.0f} points and cannot be drawn.")
        buffer = io.BytesIO()
        sheet.render(scale=scale).to_pil().convert("RGB").save(buffer, "PNG", compress_level=3)
        return buffer.getvalue()
