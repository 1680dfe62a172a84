"""A folder of mixed files to follow: texts, pages of real PDFs, office files, mails; and changes to it.

Every made file holds one made fact that stands nowhere else, so that a question has one right document.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

import docx
import openpyxl
import pptx
import pypdf

_COMMON = """the of and to in a is that for it as was with be by on not he his but at are this have from or had an they
which one you were all her she there would their we him been has when who will no more if out so said what up
its about into than them can only other time new some could these two may first then do any like my now over
such our man me even most made after also did many before must through years where much your way well down
should because each just those people how too little state good very make world still see own work long here
get both between life being under never day same another know while last might great old year off come since
go against came right take three water house river bridge market garden letter winter harbour engine paper
meeting garden window report measure"""
WORDS = _COMMON.split()
# How many of a hundred files have each format; the rest are plain text.
SHARES = {".pdf": 12, ".docx": 10, ".xlsx": 6, ".pptx": 6, ".eml": 8, ".html": 10, ".csv": 6, ".md": 12}


def fact(number: int) -> str:
    return f"The keeper of box {number} is called {name_of(number)}."


def question(number: int) -> str:
    return f"Who is the keeper of box {number}?"


def name_of(number: int) -> str:
    """Different for different numbers."""
    parts = ("ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu")
    return "".join(parts[int(digit)] for digit in f"{number:04}").capitalize()


def make_folder(folder: Path, files: int, pdfs: list[Path], seed: int = 0, *, words: int = 150) -> dict[str, int]:
    """`files` files below `folder`, in sub-folders of 50, the made ones of about `words` words; the whole PDFs are
    among them. Returns how many of which format."""
    rng = random.Random(seed)
    pages = [(path, number) for path in pdfs for number in range(min(40, len(pypdf.PdfReader(path).pages)))]
    for path in pdfs:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path.name).write_bytes(path.read_bytes())
    made = Counter({".pdf": len(pdfs)})
    order = [suffix for suffix, share in SHARES.items() for _ in range(share)]
    order += [".txt"] * (100 - len(order))
    rng.shuffle(order)
    for number in range(files - len(pdfs)):
        suffix = order[number % 100]
        if suffix == ".pdf" and not pages:
            suffix = ".txt"
        path = folder / f"part-{number // 50:02}" / f"file-{number:04}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if suffix == ".pdf":
            _page_of(*pages[rng.randrange(len(pages))], path, number)
        else:
            write(path, number, rng, words)
        made[suffix] += 1
    return dict(made)


def change_folder(folder: Path, places: int, files: int, seed: int = 1, *, words: int = 150) -> dict[str, int]:
    """Of `places`: four in ten files get another text, two in ten each are new, moved and removed."""
    rng = random.Random(seed)
    present = sorted(path for path in folder.rglob("file-*") if path.suffix != ".pdf")
    picked = rng.sample(present, places - places // 5)
    counts = {"changed": places - 3 * (places // 5), "moved": places // 5, "removed": places // 5}
    changed, moved, removed = (_taken(picked, counts[what]) for what in counts)
    for path in changed:
        write(path, int(path.stem[-4:]), rng, words)
    for path in moved:
        path.rename(path.with_name(f"moved-{path.name}"))
    for path in removed:
        path.unlink()
    for number in range(files, files + places // 5):
        write(folder / f"new-{number:04}.txt", number, rng, words)
    return counts | {"added": places // 5}


def write(path: Path, number: int, rng: random.Random, words: int = 150) -> None:
    """A file of its suffix's format with about `words` words (20 or more) and the fact of `number`."""
    around = (words - 20) // 2
    known = f"{_prose(rng, 10)} {fact(number)} {_prose(rng, 10)}"
    paragraphs = [_prose(rng, around), known, _prose(rng, around)]
    _WRITERS.get(path.suffix, _text)(path, f"Notes {number}", paragraphs)


def _taken(paths: list[Path], count: int) -> list[Path]:
    return [paths.pop() for _ in range(count)]


def _prose(rng: random.Random, words: int) -> str:
    sentences, left = [], words
    while left > 0:
        length = min(left, rng.randrange(6, 16))
        sentences.append(" ".join(rng.choices(WORDS, k=length)).capitalize() + ".")
        left -= length
    return " ".join(sentences)


def _page_of(source: Path, number: int, path: Path, tag: int) -> None:
    """One page of a real PDF, its own file."""
    writer = pypdf.PdfWriter()
    writer.add_page(pypdf.PdfReader(source).pages[number])
    writer.add_metadata({"/Subject": str(tag)})
    writer.write(path)


def _text(path: Path, title: str, paragraphs: list[str]) -> None:
    path.write_text("\n\n".join([title, *paragraphs]) + "\n", encoding="utf-8")


def _markdown(path: Path, title: str, paragraphs: list[str]) -> None:
    path.write_text("\n\n".join([f"# {title}", *paragraphs]) + "\n", encoding="utf-8")


def _html(path: Path, title: str, paragraphs: list[str]) -> None:
    body = "".join(f"<p>{each}</p>" for each in paragraphs)
    path.write_text(f"<html><head><title>{title}</title></head><body><h1>{title}</h1>{body}</body></html>")


def _csv(path: Path, title: str, paragraphs: list[str]) -> None:
    rows = [f'{number},"{each}"' for number, each in enumerate(paragraphs, 1)]
    path.write_text("\n".join(["Number,Remark", *rows]) + "\n")


def _mail(path: Path, title: str, paragraphs: list[str]) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Ann <ann@example.org>", "Ben <ben@example.org>", title
    mail["Date"] = "Mon, 02 Nov 2026 10:00:00 +0000"
    mail.set_content("\n\n".join(paragraphs))
    path.write_bytes(mail.as_bytes())


def _word(path: Path, title: str, paragraphs: list[str]) -> None:
    document = docx.Document()
    document.add_heading(title)
    for each in paragraphs:
        document.add_paragraph(each)
    document.save(str(path))


def _workbook(path: Path, title: str, paragraphs: list[str]) -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    sheet.title = title
    sheet.append(["Number", "Remark"])
    for number, each in enumerate(paragraphs, 1):
        sheet.append([number, each])
    book.save(path)


def _slides(path: Path, title: str, paragraphs: list[str]) -> None:
    show = pptx.Presentation()
    for each in paragraphs:
        slide = show.slides.add_slide(show.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = title, each
    buffer = io.BytesIO()
    show.save(buffer)
    path.write_bytes(buffer.getvalue())


_WRITERS: dict[str, Callable[[Path, str, list[str]], None]] = {
    ".md": _markdown, ".html": _html, ".csv": _csv, ".eml": _mail, ".docx": _word, ".xlsx": _workbook, ".pptx": _slides,
}  # fmt: skip
