"""Does a change keep every answer? Answers, passages and scores of development questions, dumped and compared.

    python benchmarks/quality/same_answers.py dump --data FOLDER --out before.json [--questions 100]
    python benchmarks/quality/same_answers.py compare before.json after.json

`dump` stores the passages of the drawn questions, a document each, in a fresh library, asks every question of all of
them, and writes down what came. It uses nothing but the facade, so an older checkout can run this file too. `compare`
lists every difference; scores and shares may differ by 1e-4.
"""

import argparse
import json
import lzma
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from app.assembly import open_library
from app.settings import load_settings

TOLERANCE = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    dumping = commands.add_parser("dump")
    dumping.add_argument("--data", type=Path, required=True, help="folder with qa/")
    dumping.add_argument("--out", type=Path, required=True)
    dumping.add_argument("--questions", type=int, default=100)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "dump":
        answers = dump(arguments.data / "qa", arguments.questions)
        arguments.out.write_text(json.dumps(answers, indent=1))
    else:
        before, after = (json.loads(path.read_text()) for path in (arguments.before, arguments.after))
        differs = compare(before["answers"], after["answers"])
        print(f"{len(before['answers'])} answers compared: " + ("differences above" if differs else "nothing differs"))
        raise SystemExit(differs)


def dump(folder: Path, count: int) -> dict[str, Any]:
    rows = []
    for file in sorted(folder.glob("*.dev.jsonl.xz")):
        with lzma.open(file, "rt", encoding="utf-8") as lines:
            rows += [json.loads(line) for line in lines]
    drawn = random.Random(0).sample(rows, count)
    with tempfile.TemporaryDirectory() as home, open_library(load_settings(home=Path(home) / "home")) as library:
        contexts = sorted({row["context"] for row in drawn})
        for number, context in enumerate(contexts):
            file = Path(home) / f"{number}.txt"
            file.write_text(context, encoding="utf-8")
            library.run_job(library.submit(file).id)
        library.warm_up()
        began = time.perf_counter()
        answers = [plain(list(library.ask(row["question"]))[-1]) for row in drawn]
        seconds = time.perf_counter() - began
    return {"documents": len(contexts), "seconds": seconds, "answers": answers}


def plain(answer: Any) -> dict[str, Any]:
    return {
        "question": answer.question,
        "text": answer.text,
        "found": answer.found,
        "confidence": answer.confidence,
        "pointed": "".join(token.text for token in answer.tokens if token.pointed),
        "memory_share": answer.memory_share,
        "passages": [passage(each) for each in answer.passages],
        "near_misses": [passage(each) for each in answer.near_misses],
        "others": [passage(each.passage) for each in answer.other_sentences],
    }


def passage(each: Any) -> dict[str, Any]:
    return {"source": each.source, "start": each.start_index, "text": each.text, "score": each.score}


def compare(before: Any, after: Any, place: str = "answers") -> int:
    """1 if anything differs, after saying what."""
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        return max([compare(before[key], after[key], f"{place}.{key}") for key in before], default=0)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return max([compare(a, b, f"{place}[{number}]") for number, (a, b) in pairs], default=0)
    if isinstance(before, float) and isinstance(after, float):
        same = abs(before - after) <= TOLERANCE
    else:
        same = before == after
    if not same:
        print(f"{place}: {before!r} -> {after!r}")
    return int(not same)


if __name__ == "__main__":
    main()
