"""Text recognised in pictures of pages, against the text that the pages hold: words, characters, seconds.

    python benchmarks/extraction/recognition.py --pdfs FOLDER [--pages N] [--engines tesseract rapidocr] [--dpi 200]

N pages of each PDF with a text layer, spread evenly over those with at least 50 upright words, are drawn as grey
pictures and recognised, on one core. Options try other ways: page segmentation, pictures enlarged, in black and white
or in colour, other models, no dictionary, another measure of which words are dropped. Both texts become words in the
same way (words divided at the end of a line are joined). Word accuracy is the share of the words of the page that were
recognised, in whatever order. For the error rate of characters, each word left over is compared with the nearest
recognised one that is left over; what has no such word is wrong as a whole. `apart` is the accuracy where letters and
digits that touch are two words on both sides, as a text layer has raised marks of notes as letters of the word before
them; `letters` is that of words of letters alone. Seconds are of the processor. A PDF without a text layer takes part
if its text stands beside this file under its name, pages parted by form feeds. RapidOCR is no dependency of Cairn:
`pip install rapidocr onnxruntime` (its models of 2026, in the wheel), or `rapidocr-onnxruntime` (those of 2023).
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
APART = re.compile(r"[^\W\d_]+|\d+")
Reader = Callable[[Image.Image, float, float], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, required=True)
    parser.add_argument("--pages", type=int, default=3, help="of each PDF")
    parser.add_argument("--engines", choices=tuple(ENGINES), nargs="+", default=["tesseract"])
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
    readers = {name: ENGINES[name](arguments) for name in arguments.engines}
    totals: dict[str, list[tuple[float, ...]]] = {name: [] for name in readers}
    for path in sorted(arguments.pdfs.glob("*.pdf")):
        for number, wanted, picture, size in pages(path, arguments.pages, arguments.dpi):
            print(f"{path.stem[:40]:40} page {number + 1:4} {len(wanted):5} words", end="")
            for name, read in readers.items():
                began = time.process_time()
                text = read(prepared(picture, arguments), *size)
                totals[name].append(measured(wanted, words(text), time.process_time() - began))
                count, right, characters, wrong, *_, seconds = totals[name][-1]
                print(f" | {name} {right / count:.3f}, wrong {wrong / characters:.4f}, {seconds:.2f} s", end="")
            print(flush=True)
    for name, found in totals.items():
        total = np.array(found).sum(axis=0)
        print(
            f"{name}: {len(found)} pages, {total[0]:.0f} words: word accuracy {total[1] / total[0]:.4f}, apart "
            f"{total[5] / total[4]:.4f}, letters {total[7] / total[6]:.4f}, wrong characters "
            f"{total[3] / total[2]:.4f}, {total[8] / len(found):.2f} s a page, at most "
            f"{max(page[8] for page in found):.2f}"
        )


def measured(wanted: list[str], found: list[str], seconds: float) -> tuple[float, ...]:
    """(words, recognised, characters, wrong, words apart, recognised, words of letters, recognised, seconds)."""
    parted: list[float] = []
    for pattern in (APART, LETTERS):
        ours, theirs = ([part for word in side for part in pattern.findall(word)] for side in (wanted, found))
        parted += len(ours), len(ours) - (Counter(ours) - Counter(theirs)).total()
    return *compared(wanted, found), *parted, seconds


def pages(path: Path, count: int, dpi: int) -> Iterator[tuple[int, list[str], Image.Image, tuple[float, float]]]:
    """(number, words, picture, width and height in points) of some pages with a text layer."""
    document = pdfium.PdfDocument(path)
    known = Path(__file__).with_name(f"{path.stem}.txt")
    texts = known.read_text(encoding="utf-8").split("\f") if known.exists() else []
    usable = [(number, words(joined(text))) for number, text in enumerate(texts)]
    for number in range(0 if texts else len(document)):
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
    return joined("\n".join(texts))


def joined(text: str) -> str:
    return re.sub("[-\u2010\u00ad]\n", "", text)


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


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


def rapidocr(arguments: argparse.Namespace) -> Reader:
    from rapidocr import RapidOCR

    threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
    engine = RapidOCR(params=threads | {"Global.log_level": "warning"})
    return _lines_of(lambda picture: engine(picture, use_cls=False).txts or ())


def rapidocr_2023(arguments: argparse.Namespace) -> Reader:
    from rapidocr_onnxruntime import RapidOCR

    engine = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)
    return _lines_of(lambda picture: [text for _, text, _ in engine(picture, use_cls=False)[0] or ()])


def _lines_of(recognised: Callable[[np.ndarray], Iterable[str]]) -> Reader:
    def read(picture: Image.Image, width: float, height: float) -> str:
        return joined("\n".join(recognised(np.asarray(picture.convert("RGB"))[:, :, ::-1])))

    return read


ENGINES: dict[str, Callable[[argparse.Namespace], Reader]] = {
    "tesseract": tesseract, "rapidocr": rapidocr, "rapidocr-2023": rapidocr_2023,
}  # fmt: skip


if __name__ == "__main__":
    main()
