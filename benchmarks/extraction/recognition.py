"""Text recognised in pictures of pages, against the text that the pages hold: words, characters, seconds.

    python benchmarks/extraction/recognition.py --pdfs FOLDER [--pages N] [--engine tesseract|rapidocr] [--dpi 200]

N pages of each PDF with a text layer, spread evenly over those with at least 50 upright words, are drawn as grey
pictures and recognised, on one core. Options try other ways: page segmentation, pictures enlarged, in black and white
or in colour, other models, no dictionary, another measure of which words are dropped. Both texts become words in the
same way (words divided at the end of a line are joined). Word accuracy is the share of the words of the page that were
recognised, in whatever order. For the error rate of characters, each word left over is compared with the nearest
recognised one that is left over; what has no such word is wrong as a whole. `letters` is the accuracy of the letters of
words alone: numbers and raised marks of notes, which a text layer has as letters of the word before them, are left out
on both sides. Seconds are of the processor. RapidOCR is no dependency of Cairn: `pip install rapidocr-onnxruntime` for
its side.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["OMP_THREAD_LIMIT"] = os.environ["OMP_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import numpy as np
import pypdfium2 as pdfium
from PIL import Image

from retrieval.extraction.ocr import recognise
from retrieval.extraction.ocr.languages import DEFAULT, language_files
from retrieval.extraction.pdf.characters import PageCharacters, read_characters
from retrieval.extraction.pdf.layout import read_lines
from retrieval.extraction.pdf.text_boxes import plain_line

LEAST_WORDS = 50
WORD = re.compile(r"\w+")
LETTERS = re.compile(r"[^\W\d_]+")
Reader = Callable[[Image.Image, float, float], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=3, help="of each PDF")
    parser.add_argument("--engine", choices=("tesseract", "rapidocr"), default="tesseract")
    parser.add_argument("--dpi", type=int, default=200)
    parser.add_argument("--psm", type=int, help="page segmentation of Tesseract; default: 3, automatic")
    parser.add_argument("--enlarge", type=float, default=1.0, help="times as large as drawn")
    parser.add_argument("--colour", choices=("grey", "rgb", "black"), default="grey", help="black: by Otsu's threshold")
    parser.add_argument("--no-dictionary", action="store_true")
    parser.add_argument("--models", type=Path, help="folder of other models")
    parser.add_argument("--language", default=DEFAULT)
    parser.add_argument("--sure-line", type=float, help="percent from which a line is kept whole; 101: none is")
    arguments = parser.parse_args()
    chosen = {name: str(value) for name, value in vars(arguments).items() if name not in ("pdfs", "pages")}
    print(json.dumps(machine.described(1) | {"chosen": chosen}))
    read = tesseract(arguments) if arguments.engine == "tesseract" else rapidocr()
    totals, letters = np.zeros(4), np.zeros(2)  # words, words recognised, characters, wrong ones
    seconds: list[float] = []
    for path in sorted(arguments.pdfs.glob("*.pdf")):
        for number, wanted, picture, size in pages(path, arguments.pages, arguments.dpi):
            began = time.process_time()
            text = read(prepared(picture, arguments), *size)
            seconds.append(time.process_time() - began)
            found = compared(wanted, words(text))
            totals += found
            plain, theirs = letters_of(wanted), letters_of(words(text))
            letters += len(plain), len(plain) - (Counter(plain) - Counter(theirs)).total()
            print(
                f"{path.stem[:40]:40} page {number + 1:4} {found[0]:6.0f} words, accuracy {found[1] / found[0]:.3f}, "
                f"wrong characters {found[3] / found[2]:.4f}, {seconds[-1]:.2f} s",
                flush=True,
            )
    print(
        f"{len(seconds)} pages, {totals[0]:.0f} words: word accuracy {totals[1] / totals[0]:.4f}, "
        f"letters {letters[1] / letters[0]:.4f}, wrong characters "
        f"{totals[3] / totals[2]:.4f}, {np.mean(seconds):.2f} s a page, at most {max(seconds):.2f}"
    )


def pages(path: Path, count: int, dpi: int) -> Iterator[tuple[int, list[str], Image.Image, tuple[float, float]]]:
    """(number, words, picture, width and height in points) of some pages with a text layer."""
    document = pdfium.PdfDocument(path)
    usable = []
    for number in range(len(document)):
        if document[number].get_textpage().count_chars() > 4 * LEAST_WORDS:
            wanted = words(text_of([read_characters(document[number], document[number].get_textpage())]))
            if len(wanted) >= LEAST_WORDS:
                usable.append((number, wanted))
    for at in np.unique(np.linspace(0, max(0, len(usable) - 1), count).round().astype(int)) if usable else ():
        number, wanted = usable[at]
        page = document[number]
        picture = page.render(scale=dpi / 72, grayscale=True).to_pil().convert("L")
        yield number, wanted, picture, page.get_size()


def text_of(blocks: list[PageCharacters]) -> str:
    """The upright lines, words that are divided between two of them joined."""
    texts = []
    for block in blocks:
        lines = [plain_line(0, block, line) for line in read_lines(block)]
        texts += [line.text for line in lines if line is not None and line.turn == 0]
    return re.sub("[-\u2010\u00ad]\n", "", "\n".join(texts))


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def letters_of(found: list[str]) -> list[str]:
    return [part for word in found for part in LETTERS.findall(word)]


def prepared(picture: Image.Image, arguments: argparse.Namespace) -> Image.Image:
    if arguments.enlarge != 1.0:
        size = round(picture.width * arguments.enlarge), round(picture.height * arguments.enlarge)
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    if arguments.colour == "rgb":
        return picture.convert("RGB")
    if arguments.colour == "black":
        threshold = otsu(picture)
        return picture.point(lambda value: 255 * (value > threshold))
    return picture


def otsu(picture: Image.Image) -> int:
    """The value that parts dark from light best."""
    counts = np.array(picture.histogram()[:256], float)
    below, sums = counts.cumsum(), (counts * np.arange(256)).cumsum()
    above = below[-1] - below
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * (sums / below - (sums[-1] - sums) / above) ** 2
    return int(np.nanargmax(between))


def compared(wanted: list[str], found: list[str]) -> tuple[int, int, int, int]:
    """(words, words recognised, characters, wrong characters)."""
    missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    wrong = 0
    for word in sorted(missing.elements(), key=len, reverse=True):
        nearest = min(extra, key=lambda other: distance(word, other), default="")
        cost = distance(word, nearest)
        if cost < len(word):
            extra[nearest] -= 1
            extra += Counter()
        wrong += min(cost, len(word))
    return len(wanted), len(wanted) - missing.total(), sum(map(len, wanted)), wrong


def distance(one: str, other: str) -> int:
    """Letters to change, add or leave out."""
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, theirs in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != theirs))
    return row[-1]


def tesseract(arguments: argparse.Namespace) -> Reader:
    """As Cairn does it, with what the arguments change."""
    folder = Path(tempfile.mkdtemp())
    files = [arguments.models / f"{arguments.language}.traineddata"] if arguments.models else language_files(DEFAULT)
    for file in files:
        (folder / file.name).symlink_to(file.resolve())
    if arguments.sure_line is not None:
        recognise._SURE_LINE = arguments.sure_line
    recogniser = recognise.Recogniser(folder, arguments.language)
    if arguments.no_dictionary:
        recogniser._engine = recogniser._parts.PyTessBaseAPI(
            path=str(folder), lang=arguments.language, psm=recogniser._parts.PSM.AUTO,
            oem=recogniser._parts.OEM.LSTM_ONLY, variables={"load_system_dawg": "0", "load_freq_dawg": "0"},
        )  # fmt: skip
    if arguments.psm is not None:
        recogniser._engine.SetPageSegMode(arguments.psm)
    return lambda picture, width, height: text_of(recogniser.read(picture, width, height))


def rapidocr() -> Reader:
    from rapidocr_onnxruntime import RapidOCR

    engine = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)

    def read(picture: Image.Image, width: float, height: float) -> str:
        found, _ = engine(np.asarray(picture.convert("RGB"))[:, :, ::-1], use_cls=False)
        return re.sub("-\n", "", "\n".join(text for _, text, _ in found or ()))

    return read


if __name__ == "__main__":
    main()
