"""Damaged, locked and hostile files fail alone, with a reason that a person understands."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import zlib
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pypdf
import pytest
from PIL import Image
from pypdf.generic import ArrayObject, ByteStringObject, DictionaryObject, NameObject, NumberObject

from retrieval.errors import ExtractError
from retrieval.extraction.extract import ExtractLimits, extract, render_page, unlock
from retrieval.extraction.process.ipc import EXIT_IDLE, FORKS
from retrieval.extraction.process.sandbox import Sandbox
from tests.retrieval.pdf_maker import Sheet, make_pdf, write_objects
from tests.waiting import until

GOOD = make_pdf([Sheet([(72, 700, 12, "Hello world of letters")])], title="A title")
CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
LOOP = write_objects(
    [
        CATALOG,
        b"<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 2 >>",
        b"<< /Type /Pages /Parent 2 0 R /Kids [2 0 R] /Count 1 >>",
    ]
)


def slow_pdf(strings: int) -> bytes:
    """A page that prints so many strings: 40,000 take seconds to read."""
    return make_pdf([Sheet(content=b"BT /F1 1 Tf 9 9 Td " + b"(aaaaaaaaaaaaaaaaaaaaaaaa) Tj " * strings + b"ET")])


@cache
def flate_bomb(megabytes: int) -> bytes:
    """A page whose content unpacks, in two steps, to so many megabytes."""
    packer = zlib.compressobj(9)
    once = b"".join([*(packer.compress(b"q " * 500_000) for _ in range(megabytes)), packer.flush()])
    twice = zlib.compress(once, 9)
    stream = b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%s\nendstream" % (len(twice), twice)
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 100 100] /Contents 4 0 R >>"
    return write_objects([CATALOG, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>", page, stream])


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("empty.pdf", b"", "empty"),
        ("cut.pdf", GOOD[: len(GOOD) * 2 // 3], "cut off"),
        ("archive.pdf", b"PK\x03\x04 and so on", "not a PDF: its content is a zip archive"),
        ("words.pdf", b"only words", "is not a PDF"),
        ("no pages.pdf", make_pdf([]), "has no pages"),
        ("loop.pdf", LOOP, "page tree is damaged"),
        ("no root.pdf", write_objects([b"<< /Foo 1 >>"]), "structure is damaged"),
        (
            "scan.pdf",
            make_pdf([Sheet(content=b"0 0 9 9 re f")] * 2),
            r"no text, and none was recognised in its pictures",
        ),
        ("blank.pdf", make_pdf([Sheet()]), r"no text, and its pages show nothing"),
        ("pages.exe", b"MZ", r"\.exe files cannot be read\. These can: PDF, Word, Excel"),
        ("noending", b"x", "without a name ending"),
    ],
)
def test_a_bad_file_is_refused_with_its_reason(tmp_path, name, data, reason):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ExtractError, match=reason):
        extract(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ExtractError, match="no file .*gone.pdf"):
        extract(tmp_path / "gone.pdf")


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_a_locked_file_asks_for_its_password_and_opens_with_it(tmp_path, algorithm):
    if algorithm.startswith("AES"):
        pytest.importorskip("cryptography")
    writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(GOOD)))
    writer.encrypt("secret", "owner", algorithm=algorithm)
    path = tmp_path / "locked.pdf"
    writer.write(path)
    with pytest.raises(ExtractError, match="needs a password"):
        extract(path)
    with pytest.raises(ExtractError, match="does not open"):
        extract(path, password="wrong")
    assert extract(path, password="secret").text == "Hello world of letters"
    assert render_page(path, 0, password="secret").startswith(b"\x89PNG")
    bare = tmp_path / "bare.pdf"
    with pytest.raises(ExtractError, match="does not open"):
        unlock(path, bare, password="wrong")
    assert not bare.exists()
    assert unlock(path, bare, password="secret") and extract(bare).text == "Hello world of letters"
    assert bare.stat().st_mode & 0o077 == 0, "for its owner only"


def test_a_password_that_is_not_asked_for_is_ignored(tmp_path):
    path = tmp_path / "open.pdf"
    path.write_bytes(GOOD)
    assert extract(path, password="needless").title == "A title"


def test_too_many_pages_characters_and_seconds_are_refused(tmp_path):
    path = tmp_path / "many.pdf"
    path.write_bytes(make_pdf([Sheet([(72, 700, 12, "Hello world of letters")])] * 12))
    with pytest.raises(ExtractError, match="12 pages; at most 10"):
        extract(path, limits=ExtractLimits(pages=10))
    with pytest.raises(ExtractError, match="more than 100 characters"):
        extract(path, limits=ExtractLimits(characters=100))
    slow = tmp_path / "slow.pdf"
    slow.write_bytes(slow_pdf(40_000))
    with pytest.raises(ExtractError, match="longer than 1 seconds"):
        extract(slow, limits=ExtractLimits(seconds=1))


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system for it where it can")
def test_a_reader_ends_with_the_process_that_waits_for_it(tmp_path):
    path = tmp_path / "slow.pdf"
    path.write_bytes(slow_pdf(600_000))
    script = "import sys; from retrieval.extraction.extract import extract; print(flush=True); extract(sys.argv[1])"
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parents[3]) as waiting:
        assert waiting.stdout is not None and waiting.stdout.readline()
        readers = until(lambda: readers_of(waiting.pid))  # a process of its own reads the file
        waiting.kill()
    until(lambda: not any(Path(f"/proc/{each}").exists() for each in readers))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_one_process_waits_for_the_next_file_and_ends_with_its_owner(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("The dam was raised in 1951.")
    script = (
        "import sys; from retrieval.extraction.extract import SANDBOX, extract\n"
        "for _ in range(3):\n"
        "    text = extract(sys.argv[1]).text\n"
        "    print(SANDBOX._waiting.pid, text, flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(path)]
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, text=True) as owner:
        assert owner.stdout is not None
        said = [owner.stdout.readline().split(" ", 1) for _ in range(3)]
        assert [text.strip() for _, text in said] == ["The dam was raised in 1951."] * 3
        pids = [int(pid) for pid, _ in said]
        assert len(set(pids)) == (1 if FORKS else 3) and readers_of(owner.pid) == pids[2:]
        owner.kill()
    until(lambda: not Path(f"/proc/{pids[2]}").exists())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_starts_readers_of_its_own(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("The dam was raised in 1951.")
    script = (
        "import os, sys; from retrieval.extraction.extract import extract\n"
        "extract(sys.argv[1])\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if extract(sys.argv[1]).text.startswith('The dam') else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "print(extract(sys.argv[1]).text)"
    )
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", script, str(path)]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "The dam was raised in 1951.", ended.stderr


def test_a_reader_that_went_home_is_replaced(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("The dam was raised in 1951.")
    sandbox = Sandbox()
    for stale in (True, False):
        sandbox.start_next()
        waiting = sandbox._waiting
        assert waiting is not None and waiting.stdin is not None
        if stale:
            waiting.stdin.close()
            assert waiting.wait(60) == EXIT_IDLE
            waiting.stdin = None
        folder = tmp_path / str(stale)
        folder.mkdir()
        request = {"task": "extract", "suffix": ".txt", "password": None, "path": str(path), "folder": str(folder)}
        status, complaint = sandbox.serve(request | {"limits": asdict(ExtractLimits()), "caller": os.getpid()}, 60)
        assert (status, complaint) == (0, "") and (folder / "result.json").is_file()
    sandbox.close()


def readers_of(process: int) -> list[int]:
    """Child processes, by /proc."""
    children = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == process:
                children.append(int(status.parent.name))
    return children


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux")
def test_a_file_that_unpacks_to_gigabytes_fails_alone(tmp_path):
    path = tmp_path / "bomb.pdf"
    path.write_bytes(flate_bomb(600))
    with pytest.raises(ExtractError, match=r"memory|crashed"):
        extract(path, limits=ExtractLimits(memory_bytes=300 << 20))


def test_a_damaged_outline_does_not_cost_the_text(tmp_path):
    path = tmp_path / "outline.pdf"
    path.write_bytes(
        make_pdf([Sheet([(72, 700, 12, "Readable all the same")])], extra="/Outlines 99 0 R /PageLabels 7")
    )
    document = extract(path)
    assert document.text == "Readable all the same" and document.outline == ()


def test_the_outline_knows_its_pages_and_places(tmp_path):
    writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(make_pdf([Sheet([(72, 700, 12, "Words")])] * 3))))
    chapter = writer.add_outline_item(title="Chapter", page_number=1)
    writer.add_outline_item(title="Section", page_number=2, parent=chapter)
    path = tmp_path / "outline.pdf"
    writer.write(path)
    document = extract(path)
    assert [(entry.title, entry.level, entry.page) for entry in document.outline] == [
        ("Chapter", 0, 1),
        ("Section", 1, 2),
    ]
    assert [entry.start for entry in document.outline] == [page.start for page in document.pages[1:]]


def test_half_a_letter_in_a_title_or_the_label_of_a_page_is_no_reason_to_refuse_a_file(tmp_path):
    half = ByteStringObject(b"\xfe\xff\xd8\x00\x00A")
    writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(GOOD)))
    writer.add_outline_item(title="Chapter", page_number=0).get_object()[NameObject("/Title")] = half
    label = DictionaryObject({NameObject("/P"): half})
    labels = ArrayObject([NumberObject(0), label])
    writer.root_object[NameObject("/PageLabels")] = DictionaryObject({NameObject("/Nums"): labels})
    path = tmp_path / "half.pdf"
    writer.write(path)
    document = extract(path)
    assert document.text == "Hello world of letters"
    assert [page.label for page in document.pages] == ["\ufffdA"]


def test_a_page_image_is_as_wide_as_asked_and_never_larger_than_allowed(tmp_path):
    path = tmp_path / "page.pdf"
    path.write_bytes(make_pdf([Sheet([(72, 700, 12, "Hello")]), Sheet(width=14_000, height=14_000)]))
    assert Image.open(io.BytesIO(render_page(path, 0, width_px=850))).size == (850, 1100)
    huge = Image.open(io.BytesIO(render_page(path, 1, width_px=50_000, limits=ExtractLimits(pixels=1_000_000))))
    assert huge.width * huge.height <= 1_001_000
    with pytest.raises(ExtractError, match="no page 3"):
        render_page(path, 2)
    with pytest.raises(ValueError, match="width_px"):
        render_page(path, 0, width_px=0)


def test_the_worker_starts_without_the_model_or_the_index():
    code = (
        "import sys, retrieval.extraction.process.worker, retrieval.extraction.pdf.extract_pdf, "
        "retrieval.extraction.office, retrieval.extraction.markup, retrieval.extraction.pdf.extract_pdf; "
        "print([name for name in ('torch', 'faiss', 'transformers', 'sqlalchemy') if name in sys.modules])"
    )
    root = Path(__file__).resolve().parents[3]
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_limits_must_be_positive():
    with pytest.raises(ValueError, match="seconds must be above 0"):
        ExtractLimits(seconds=0)
