"""What was filled into the fields of a PDF form: read beside its label, and drawn on the page."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from retrieval.extraction.extract import extract, render_page
from tests.retrieval.pdf_maker import column, write_objects

FILLED = {"Family name": "Okonkwo", "Given names": "Ada Maria", "Date of birth": "14 March 1979", "Fee": "42.50 pounds"}


def stream(content: bytes, more: bytes = b"") -> bytes:
    return b"<< %s /Length %d >>\nstream\n%s\nendstream" % (more, len(content), content)


def form(folder: Path, *, prose: bool = False) -> Path:
    """Labels on the left, fields on the right, and perhaps two columns of explanations below."""
    lines = [(72, 700 - 34 * n, 11, label) for n, label in enumerate(FILLED)]
    if prose:
        lines += [*column(72, 500, 14, width=40), *column(320, 500, 14, width=40, first=20)]
    drawn = "".join(f"BT /F1 {size} Tf {x} {y} Td ({text}) Tj ET\n" for x, y, size, text in lines)
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    first = 6  # of the fields, each with its appearance behind it
    fields = b" ".join(b"%d 0 R" % (first + 2 * n) for n in range(len(FILLED)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [%s] /DR << /Font << /F1 3 0 R >> >> >> >>" % fields,
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        font,
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents 5 0 R "
        b"/Annots [%s] >>" % fields,
        stream(drawn.encode()),
    ]
    for n, value in enumerate(FILLED.values()):
        bottom = 695 - 34 * n
        objects.append(
            b"<< /Type /Annot /Subtype /Widget /FT /Tx /F 4 /T (f%d) /V (%s) /Rect [220 %d 520 %d] /P 4 0 R "
            b"/DA (/F1 11 Tf 0 g) /AP << /N %d 0 R >> >>" % (n, value.encode(), bottom, bottom + 20, first + 2 * n + 1)
        )
        shown = b"/Tx BMC BT /F1 11 Tf 2 6 Td (%s) Tj ET EMC" % value.encode()
        more = b"/Type /XObject /Subtype /Form /BBox [0 0 300 20] /Resources << /Font << /F1 3 0 R >> >>"
        objects.append(stream(shown, more))
    path = folder / "form.pdf"
    path.write_bytes(write_objects(objects))
    return path


@pytest.mark.parametrize("prose", [False, True])
def test_what_was_filled_in_stands_beside_its_label(tmp_path: Path, prose: bool) -> None:
    document = extract(form(tmp_path, prose=prose))
    rows = [f"{label}\t{value}" for label, value in FILLED.items()]
    assert document.text.replace("\n\n", "\n").startswith("\n".join(rows))
    start = document.text.index("Okonkwo")
    (box,) = document.boxes(start, start + len("Okonkwo"))
    assert 220 / 612 < box.x0 < box.x1 < 300 / 612
    if prose:  # whose columns are read one after the other as ever
        first, second = (column(72, 0, 14, width=40, first=n) for n in (0, 20))
        assert squeezed(first) + squeezed(second) in squeezed([(0, 0, 0, document.text)])


def squeezed(lines: list[tuple[float, float, float, str]]) -> str:
    return "".join("".join(line.split()) for *_, line in lines)


def test_what_was_filled_in_is_drawn_on_the_page(tmp_path: Path) -> None:
    drawn = Image.open(io.BytesIO(render_page(form(tmp_path), 0, width_px=612))).convert("L")
    assert drawn.crop((221, 78, 300, 96)).getextrema()[0] < 128, "ink where the first field is"
