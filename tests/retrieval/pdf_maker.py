"""Writes small PDF files by hand, for tests: text at chosen places, rotated and cropped pages, damaged structures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sheet:
    """One page: (x, y, size, text) in page space (y upwards), drawn in the given order."""

    texts: Sequence[tuple[float, float, float, str]] = ()
    width: float = 612
    height: float = 792
    rotate: int = 0
    crop: tuple[float, float, float, float] | None = None
    media: tuple[float, float, float, float] | None = None
    content: bytes = b""  # instead of texts; /F1 is Helvetica, /F2 too, with the ligatures fi at \\256 and fl at
    # \\257, a dotted capital I at \\241 and a slanted x of mathematics at \\242, /F3 its bold face


def make_pdf(sheets: Sequence[Sheet], *, title: str = "", extra: str = "") -> bytes:
    """A whole PDF file of these pages."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding %s >>"
    objects: list[bytes] = [b"", b"", font % b"", font % b"/ToUnicode 5 0 R", _stream(_LIGATURES)]
    objects.append((font % b"/FontDescriptor 7 0 R").replace(b"Helvetica", b"Helvetica-Bold"))
    objects.append(b"<< /Type /FontDescriptor /FontName /Helvetica-Bold /Flags 32 /StemV 140 >>")
    kids = []
    for sheet in sheets:
        stream = sheet.content or _content(sheet)
        objects.append(_stream(stream))
        left, bottom, right, top = sheet.media or (0, 0, sheet.width, sheet.height)
        crop = f"/CropBox [{' '.join(map(str, sheet.crop))}]" if sheet.crop else ""
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [{left} {bottom} {right} {top}] {crop} /Rotate {sheet.rotate} "
            f"/Resources << /Font << /F1 3 0 R /F2 4 0 R /F3 6 0 R >> >> /Contents {len(objects)} 0 R >>".encode()
        )
        kids.append(f"{len(objects)} 0 R")
    objects[0] = f"<< /Type /Catalog /Pages 2 0 R {extra} >>".encode()
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    objects.append(f"<< /Title ({title}) >>".encode())
    return write_objects(objects, info=len(objects))


_LIGATURES = (
    b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /L def /CMapType 2 def "
    b"1 begincodespacerange <00> <FF> endcodespacerange 4 beginbfchar <AE> <FB01> <AF> <FB02> "
    b"<A1> <0130> <A2> <D835DC65> endbfchar "
    b"endcmap end end"
)


def _stream(data: bytes) -> bytes:
    return b"<< /Length %d >>\nstream\n%s\nendstream" % (len(data), data)


def write_objects(objects: Sequence[bytes], info: int | None = None) -> bytes:
    """Objects 1, 2, ... with cross-reference table and trailer; object 1 is the root."""
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    places = []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for place in places:
        out += b"%010d 00000 n \n" % place
    about = f"/Info {info} 0 R" if info else ""
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {about} >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)


def _content(sheet: Sheet) -> bytes:
    """Text operators; the text matrix turns with the page so that rotated pages show upright text."""
    turns = {0: "1 0 0 1", 90: "0 1 -1 0", 180: "-1 0 0 -1", 270: "0 -1 1 0"}
    parts = ["BT"]
    for x, y, size, text in sheet.texts:
        escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        px, py = _to_page(sheet, x, y)
        parts.append(f"/F1 {size} Tf {turns[sheet.rotate]} {px} {py} Tm ({escaped}) Tj")
    parts.append("ET")
    return "\n".join(parts).encode("cp1252")


def _to_page(sheet: Sheet, x: float, y: float) -> tuple[float, float]:
    """From upright display coordinates (origin bottom left of what is shown) to page space."""
    left, bottom, right, top = sheet.crop or sheet.media or (0, 0, sheet.width, sheet.height)
    return {
        0: (left + x, bottom + y),
        90: (right - y, bottom + x),
        180: (right - x, top - y),
        270: (left + y, top - x),
    }[sheet.rotate]


_PROSE = (
    "The river carried the boats past the old mill while the children counted the arches of the bridge and the miller "
    "wrote the number of every sack into a long green book that nobody but he could read without a lamp and patience"
)


def column(
    x: float, top: float, lines: int, *, size: float = 10, width: int = 38, first: int = 0, leading: float = 12
) -> list[tuple[float, float, float, str]]:
    """Lines of prose for one column, about `width` characters each; `first` chooses where the prose begins."""
    words = _PROSE.split()
    result = []
    word = first
    for number in range(lines):
        line = ""
        while len(line) + len(words[word % len(words)]) < width:
            line += words[word % len(words)] + " "
            word += 1
        result.append((x, top - number * leading, size, line.strip()))
    return result
