"""The documents that the questions here are about, made from the folders that hold them, and checked.

    python benchmarks/questions/held_out/documents.py --realdocs FOLDER --text FOLDER --output FOLDER [--answers]

`--realdocs`: whole files, which are copied. `--text`: `SOURCE.jsonl.xz`, a record with `id`, `title` and `text` a line,
of which the named range of characters is written as a text file named after its title. The SHA-256 of every file is
compared with that of the questions, and a document that is not there or differs ends the run.

`--answers`: every file is read as the product reads it, and the answers that do not stand in its text are named
(case, punctuation and white space aside): text that the product loses, or recognises wrongly in a scan.
"""

import argparse
import hashlib
import json
import lzma
import re
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from retrieval.errors import ExtractError
from retrieval.extraction.extract import extract

Question = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--realdocs", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="a folder; it is made")
    parser.add_argument("--answers", action="store_true", help="look for every answer in the text of its document")
    arguments = parser.parse_args()
    of_document: dict[str, list[Question]] = defaultdict(list)
    for question in read_questions():
        of_document[question["document"]].append(question)
    files = write_documents(of_document, arguments.realdocs, arguments.text, arguments.output)
    print(f"{len(files)} documents, {sum(map(len, of_document.values()))} questions")
    if arguments.answers:
        missing = [line for digest, path in files.items() for line in missing_answers(path, of_document[digest])]
        print(*missing, f"{len(missing)} answers do not stand in the text that was read", sep="\n")


def read_questions() -> Iterator[Question]:
    for path in sorted(HERE.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def write_documents(
    of_document: dict[str, list[Question]], realdocs: Path, text: Path, output: Path
) -> dict[str, Path]:
    """File of each SHA-256. Raises ValueError for a document that is not what the questions were asked of."""
    output.mkdir(parents=True, exist_ok=True)
    sources = {question["source"] for questions in of_document.values() for question in questions} - {"realdocs"}
    records = {source: read_records(text / f"{source.removeprefix('text:')}.jsonl.xz") for source in sources}
    files = {}
    for digest, (question, *_) in of_document.items():
        name, source = question["file"], question["source"]
        if source == "realdocs":
            path, content = output / name, (realdocs / name).read_bytes()
        else:
            if name not in records[source]:
                raise ValueError(f"{source} has no record {name}")
            title, whole = records[source][name]
            start, end = question["range"]
            content = whole[start:end].encode()
            words = "-".join(re.findall(r"[\w.]+", title))
            path = output / f"{words[:80]}-{digest[:4]}.txt"
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"{name} of {source} is not the document that was asked about: its SHA-256 differs")
        path.write_bytes(content)
        files[digest] = path
    return files


def read_records(path: Path) -> dict[str, tuple[str, str]]:
    """Title and text of each record."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return {record["id"]: (record["title"], record["text"]) for record in map(json.loads, lines)}


def missing_answers(path: Path, questions: list[Question]) -> Iterator[str]:
    """A line for each question without an answer in the text; of lists and two-part questions, with an item missing."""
    try:
        text = letters(extract(path).text)
    except ExtractError as error:
        yield f"{path.name}: {error}"
        return
    for question in questions:
        missing = [answer for answer in question["answers"] if letters(answer) not in text]
        if missing and (question.get("all") or len(missing) == len(question["answers"])):
            yield f"{question['id']} {path.name}: {missing}"


def letters(text: str) -> str:
    """What is compared: letters and digits in one case."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())


if __name__ == "__main__":
    main()
