"""A folder of 1,000 mixed files that is followed, changed, killed and moved: seconds, ratios, and what must hold.

    python benchmarks/load/sync_folder.py --pdfs FOLDER [--files 1000] [--places 100] [--kills 5] [--kill-files 200]
        [--words 150]

Every step is a `cairn` process of its own, its start included. `sync` reads the folder (whole PDFs of `--pdfs`, single
pages of them, texts, tables, mails and generated office files); again with nothing changed; again with `--places`
places changed (four tenths other text, two tenths each new, moved and removed). The goal for both is a twentieth of the
first time. Then `export-library` and `import-library` into a fresh home, where the function with which the model reads
documents is replaced by one that fails: the same questions must get the same answers, passages and scores. Last, a
smaller folder is synced in processes that are killed (SIGKILL) at random moments, then once to the end: every file
must have its document, each once, answer, and `verify` must find no damage. Wall clock and processor seconds (of the
process and its readers) are both printed: on a busy machine the second is the fairer ratio. Prints one JSON object;
exit status 1 if anything did not hold (the goals of time are printed, not enforced).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
from load.mixed_folder import change_folder, make_folder, question

from app.assembly import open_library
from app.settings import load_settings
from retrieval.ingest import shard_writer
from retrieval.library import Library

GOAL = 1 / 20
START_SECONDS = 2.0  # before these a process has hardly begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, help="a folder of PDFs; without it there are none")
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--words", type=int, default=150, help="of each made file; fewer where the machine is busy")
    parser.add_argument("--places", type=int, default=100)
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--kill-files", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    pdfs = sorted(arguments.pdfs.glob("*.pdf"), key=lambda path: path.stat().st_size) if arguments.pdfs else []
    report: dict[str, Any] = machine.described() | {"files": arguments.files, "words": arguments.words}
    with tempfile.TemporaryDirectory(prefix="cairn-sync-") as name:
        folder = Path(name)
        report |= times(folder, pdfs, arguments)
        print(json.dumps(report, indent=1), file=sys.stderr, flush=True)
        report["bundle"] = moved(folder, arguments)
        report["kills"] = killed(
            folder / "killed", pdfs[:1], arguments, report["first"]["seconds"] * arguments.kill_files / arguments.files
        )
    print(json.dumps(report, indent=1))
    if not (report["bundle"]["same"] and report["kills"]["nothing_lost"]):
        raise SystemExit(1)


def cairn(home: Path, *words: str) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Runs a command to its end. Its JSON lines, and its seconds."""
    used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([*_command(home), *words, "--json"], capture_output=True, text=True, cwd=ROOT)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"cairn {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    processor = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return [json.loads(line) for line in done.stdout.splitlines()], {
        "seconds": round(wall, 2),
        "processor": round(processor, 2),
    }


def _command(home: Path) -> list[str]:
    os.environ["CAIRN_HOME"] = str(home)
    return [sys.executable, "-m", "app"]


def times(folder: Path, pdfs: list[Path], arguments: argparse.Namespace) -> dict[str, Any]:
    """First run, nothing changed, some places changed."""
    files, home = folder / "files", folder / "home"
    report: dict[str, Any] = {
        "formats": make_folder(files, arguments.files, pdfs, arguments.seed, words=arguments.words)
    }
    time.sleep(1.1)  # a file that changed within the last second is left for the next run
    for step in ("first", "nothing changed", "places changed"):
        if step == "places changed":
            report["changes made"] = change_folder(
                files, arguments.places, arguments.files, arguments.seed + 1, words=arguments.words
            )
            time.sleep(1.1)
        lines, seconds = cairn(home, "sync", str(files), "--removed", "delete")
        report[step] = seconds | {"counts": lines[-1]["report"]["counts"]}
    for step in ("nothing changed", "places changed"):
        ratios = {kind: round(report[step][kind] / report["first"][kind], 4) for kind in ("seconds", "processor")}
        report[step] |= {"ratio": ratios, "goal": GOAL}
    return report


def moved(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """The library in another home, without reading."""
    bundle, elsewhere = folder / "all.cairn", folder / "elsewhere"
    _, out = cairn(folder / "home", "export-library", str(bundle))
    numbers = random.Random(arguments.seed).sample(range(arguments.files), arguments.questions)

    def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was asked to read")

    with _opened(folder / "home") as library:
        before = answers(library, numbers)
    began = time.perf_counter()
    with mock.patch.object(shard_writer, "prefill", refused), _opened(elsewhere) as library:
        arrived = list(library.bundles.import_from(bundle))
        seconds = time.perf_counter() - began
        after = answers(library, numbers)
        whole = library.verify().ok
    return {
        "documents": len(arrived),
        "megabytes": round(bundle.stat().st_size / 1e6, 1),
        "export": out["seconds"],
        "import": round(seconds, 2),
        "questions": len(numbers),
        "same": whole and before == after and {one.status for one in arrived} == {"imported"},
    }


def answers(library: Library, numbers: list[int]) -> list[Any]:
    """Text, and passages with their scores; what is new in another home (ids) left out."""
    found = []
    for number in numbers:
        *_, answer = library.ask(question(number))
        passages = [(one.source, one.text, one.score) for one in answer.passages]
        near = [(one.source, one.start_index, one.text, one.score) for one in library.search(question(number), 8)]
        found.append((answer.text, passages, near))
    return found


def _opened(home: Path) -> Library:
    return open_library(load_settings(home=home))


def killed(folder: Path, pdfs: list[Path], arguments: argparse.Namespace, expected: float) -> dict[str, Any]:
    """Kill the first sync of a folder, which takes about `expected` seconds, several times, then let it end."""
    files, home, chance = folder / "files", folder / "home", random.Random(arguments.seed)
    make_folder(files, arguments.kill_files, pdfs, arguments.seed + 2, words=arguments.words)
    time.sleep(1.1)
    states = []
    for _ in range(arguments.kills):
        process = subprocess.Popen(
            [*_command(home), "sync", str(files), "--json"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
        )  # fmt: skip
        time.sleep(START_SECONDS + chance.uniform(0, expected / arguments.kills))
        process.kill()
        states.append("killed" if process.wait() else "had ended")
    lines, seconds = cairn(home, "sync", str(files))
    wanted = {str(path.relative_to(files)) for path in files.rglob("*") if path.is_file()}
    with _opened(home) as library:
        documents = library.documents()
        sources = [document.source for document in documents]
        ready = all(document.state == "ready" for document in documents)
        names = {Path(each).name for each in sources}
        damage = not library.verify().ok
    counts = lines[-1]["report"]["counts"]
    followed = {line["source"]: line["document_id"] for line in lines[:-1]}
    complete = set(followed) == wanted and set(followed.values()) == {document.id for document in documents}
    lost = {name for name in (Path(each).name for each in wanted)} - names
    return {
        "files": len(wanted), "kills": states, "last run": seconds | {"counts": counts}, "documents": len(documents),
        "lost": sorted(lost), "nothing_lost": complete and ready and not damage,
    }  # fmt: skip


if __name__ == "__main__":
    main()
