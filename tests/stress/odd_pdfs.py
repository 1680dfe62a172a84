"""Odd PDFs, made by mutation of good ones: is each read or refused in words, within its time and memory?

    python tests/stress/odd_pdfs.py --pdfs FOLDER --files 1000

The first pages of each PDF in FOLDER are cut short, bit-flipped, filled with zeros, joined, merged, relinearised,
encrypted, nested, made huge, emptied, and more. Each file must end as text or as one line that says why not, also where
its reader crashes. Prints one line for each file with `--list`, and one JSON object; exit status 1 if anything did not
hold.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import pypdf

from retrieval.errors import ExtractError
from retrieval.extraction import extract as extraction
from retrieval.extraction.extract import extract
from retrieval.extraction.limits import ExtractLimits
from tests.stress.forked_readers import ForkedReaders

Mutation = Callable[[random.Random, bytes], bytes]
PAGES = 2


def first_pages(path: Path) -> bytes:
    reader, writer, out = pypdf.PdfReader(path), pypdf.PdfWriter(), io.BytesIO()
    for page in reader.pages[:PAGES]:
        writer.add_page(page)
    writer.write(out)
    return out.getvalue()


def truncated(chance: random.Random, good: bytes) -> bytes:
    return good[: chance.randrange(1, len(good))]


def flipped(chance: random.Random, good: bytes) -> bytes:
    bad = bytearray(good)
    for _ in range(chance.choice((1, 10, 100, 1000))):
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
    return bytes(bad)


def zeroed(chance: random.Random, good: bytes) -> bytes:
    at, size = chance.randrange(len(good)), chance.randrange(1, 5000)
    return good[:at] + bytes(len(good[at : at + size])) + good[at + size :]


def shuffled(chance: random.Random, good: bytes) -> bytes:
    size = max(1, len(good) // 8)
    pieces = [good[at : at + size] for at in range(0, len(good), size)]
    chance.shuffle(pieces)
    return b"".join(pieces)


def joined(chance: random.Random, good: bytes) -> bytes:
    return good + chance.choice((b"", b"\n", b"\0" * 100)) + good[chance.randrange(len(good) // 2) :]


def merged(chance: random.Random, good: bytes) -> bytes:
    """Pages of two, the second of which is broken in places, under one tree."""
    writer, out = pypdf.PdfWriter(), io.BytesIO()
    for part in (good, flipped(chance, good)):
        with contextlib.suppress(Exception):  # pypdf refuses it with whatever it comes upon
            writer.append(pypdf.PdfReader(io.BytesIO(part)))
    writer.write(out)
    return out.getvalue()


def relinearised(chance: random.Random, good: bytes) -> bytes:
    """Says that it can be shown page by page as it arrives, with places that are not there."""
    head, _, rest = good.partition(b"\n")
    size = chance.choice((len(good), 0, 10**9))
    claim = b"999 0 obj\n<< /Linearized 1 /L %d /H [%d %d] /O %d /E %d /N %d /T %d >>\nendobj\n" % (
        size, *(chance.choice((0, 3, 500, len(good), 10**9)) for _ in range(6))
    )  # fmt: skip
    return head + b"\n" + claim + rest


def encrypted(chance: random.Random, good: bytes) -> bytes:
    writer, out = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(good))), io.BytesIO()
    writer.encrypt(chance.choice(("", "secret")), "owner", algorithm=chance.choice(("RC4-128", "AES-256")))
    writer.write(out)
    return out.getvalue()


def numbers(chance: random.Random, good: bytes) -> bytes:
    """Some of its numbers become huge, negative or nothing."""
    words = good.split(b" ")
    places = [at for at, word in enumerate(words) if word.isdigit()]
    for at in chance.sample(places, min(len(places), chance.choice((1, 5, 50)))):
        words[at] = chance.choice((b"99999999999", b"-1", b"0", b"1e308", b"2147483648"))
    return b" ".join(words)


def references(chance: random.Random, good: bytes) -> bytes:
    """Objects refer to others than they should, also to themselves."""
    parts = good.split(b" 0 R")
    for at in range(len(parts) - 1):
        if chance.random() < 0.3:
            head, _, _number = parts[at].rpartition(b" ")
            parts[at] = head + b" %d" % chance.randrange(40)
    return b" 0 R".join(parts)


def nested(chance: random.Random, _good: bytes) -> bytes:
    depth = chance.choice((100, 5000, 200_000))
    return objects(
        [b"<< /Type /Catalog /Pages 2 0 R /Deep %s >>" % (b"[" * depth + b"]" * depth), PAGE_TREE, PAGE, TEXT]
    )


def page_loop(chance: random.Random, _good: bytes) -> bytes:
    kids = b" ".join(b"%d 0 R" % chance.randrange(2, 5) for _ in range(chance.randrange(1, 2000)))
    return objects([CATALOG, b"<< /Type /Pages /Kids [%s] /Count 99999 >>" % kids, PAGE, TEXT])


def huge(chance: random.Random, _good: bytes) -> bytes:
    box = b"[0 0 %d %d]" % (10 ** chance.randrange(3, 9), 10 ** chance.randrange(3, 9))
    return objects([CATALOG, PAGE_TREE, PAGE.replace(b"[0 0 200 200]", box), TEXT])


def unpacking(chance: random.Random, _good: bytes) -> bytes:
    """A small file whose page unpacks to many megabytes."""
    twice = packed_twice(chance.choice((10**6, 10**7, 10**8)))
    stream = b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%s\nendstream" % (len(twice), twice)
    return objects([CATALOG, PAGE_TREE, PAGE, stream])


@cache
def packed_twice(times: int) -> bytes:
    return zlib.compress(zlib.compress(b"q " * times, 9), 9)


def almost_empty(chance: random.Random, good: bytes) -> bytes:
    return chance.choice(
        (b"", b"%PDF-", b"%PDF-1.7\n%%EOF\n", b"\0" * 500, good[-200:], b"%PDF-1.7\n" + chance.randbytes(999))
    )


CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
PAGE_TREE = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
PAGE = (
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R "
    b"/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>"
)
TEXT = b"<< /Length 45 >>\nstream\nBT /F1 12 Tf 20 100 Td (The dam is old.) Tj ET   \nendstream"
MUTATIONS: tuple[Mutation, ...] = (
    truncated, flipped, zeroed, shuffled, joined, merged, relinearised, encrypted, numbers, references, nested,
    page_loop, huge, unpacking, almost_empty,
)  # fmt: skip


def objects(bodies: list[bytes]) -> bytes:
    body = b"%PDF-1.7\n" + b"".join(b"%d 0 obj\n%s\nendobj\n" % (n, each) for n, each in enumerate(bodies, 1))
    return body + b"trailer\n<< /Root 1 0 R /Size %d >>\n%%%%EOF\n" % (len(bodies) + 1)


def outcome(path: Path) -> tuple[str, str]:
    """("read", how much), ("refused", why) or ("broken", what went wrong with us)."""
    began, allowed = time.monotonic(), ExtractLimits().for_size(path.stat().st_size)
    try:
        found = "read", f"{len(extract(path).text)} characters"
    except ExtractError as error:
        reason = str(error)
        readable = 10 < len(reason) < 500 and "\n" not in reason and "Traceback" not in reason and reason.isprintable()
        found = ("refused" if readable else "broken"), reason
    except Exception as error:  # anything else is a defect, which is what is looked for
        found = "broken", f"{type(error).__name__}: {error}"
    if time.monotonic() - began > 3 * allowed.seconds + 30:
        found = "broken", "took longer than it may"
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pdfs", type=Path, default=ROOT / "tests" / "retrieval" / "extraction" / "data")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="a line for each file")
    given = parser.parse_args()
    extraction.SANDBOX = ForkedReaders()
    chance = random.Random(given.seed)
    good = [first_pages(path) for path in sorted(given.pdfs.glob("*.pdf"))]
    states: dict[str, Counter[str]] = {mutation.__name__: Counter() for mutation in MUTATIONS}
    reasons: Counter[str] = Counter()
    broken, slowest = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "odd.pdf"
        for number in range(given.files):
            mutation = MUTATIONS[number % len(MUTATIONS)]
            path.write_bytes(mutation(chance, chance.choice(good)))
            began = time.monotonic()
            state, why = outcome(path)
            slowest = max(slowest, time.monotonic() - began)
            states[mutation.__name__][state] += 1
            if state == "refused":
                reasons[why[:60]] += 1
            if state == "broken":
                broken.append(f"{mutation.__name__} {number}: {why}")
            if given.list:
                print(
                    f"{number:5} {mutation.__name__:13} {path.stat().st_size:8} bytes  {state:8} {why[:150]}",
                    flush=True,
                )
    result = machine.described() | {
        "files": given.files,
        "states": {name: dict(each) for name, each in states.items()},
        "reasons": len(reasons),
        "slowest_seconds": round(slowest, 1),
        "violations": broken,
    }
    print(json.dumps(result))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
