"""What one user alone pays: opening, ingestion and first word, of this checkout and an older one in turns.

    python benchmarks/speed/alone.py --before CHECKOUT

Each side is a process of its own, over a home of its own, with the shipped checkpoint; sides alternate. Counted are
seconds of the processor, which other programs on the machine disturb less than the clock. The second look, which other
releases do not have, is off. Prints one JSON object: medians of each side, and the ratio of this one to the other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from tests.retrieval.conftest import prose

MEASURE = """
import json, sys, time
from pathlib import Path
from app.assembly import open_library
from app.settings import load_settings
home, text = Path(sys.argv[1]), Path(sys.argv[2])
settings = load_settings(home=home)
open_library(settings).close()
seconds = {"open": [], "ingest": [], "first word": []}
def took(what, act):
    began = time.process_time()
    result = act()
    seconds[what].append(time.process_time() - began)
    return result
for _ in range(10):
    took("open", lambda: open_library(settings)).close()
with open_library(settings) as library:
    library.warm_up()
    for number in range(3):
        path = text.with_name(f"{number}.txt")
        path.write_text(f"Chapter {number}. " + text.read_text())
        job = library.submit(path)
        assert took("ingest", lambda: library.run_job(job.id)).state == "done"
    for number in range(6):
        asked = library.ask("What does the keeper of the tower carry?")
        took("first word", lambda: next(asked))
        list(asked)
print(json.dumps({what: each[what != "open":] for what, each in seconds.items()}))
"""


def measured(checkout: Path, folder: Path, text: Path) -> dict[str, list[float]]:
    environment = os.environ | {"PYTHONPATH": str(checkout), "CAIRN_MIN_FREE_BYTES": "0", "CAIRN_THREADS": "1"}
    if "second_look" in (checkout / "app" / "settings.py").read_text():
        environment["CAIRN_SECOND_LOOK"] = "false"
    command = [sys.executable, "-c", MEASURE, folder / "home", text]
    ended = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, list[float]] = json.loads(ended.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="the older checkout; run with this environment")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--characters", type=int, default=6000)
    given = parser.parse_args()
    sides = {"before": given.before.resolve(), "now": ROOT}
    runs: dict[str, dict[str, list[float]]] = {side: {} for side in sides}
    for number in range(given.rounds):
        for side in sorted(sides, reverse=bool(number % 2)):
            with tempfile.TemporaryDirectory() as name:
                text = Path(name) / "text.txt"
                text.write_text(prose(number, given.characters))
                for what, seconds in measured(sides[side], Path(name), text).items():
                    runs[side].setdefault(what, []).append(statistics.median(seconds))
            print(number, side, {what: round(each[-1], 4) for what, each in runs[side].items()}, file=sys.stderr)
    medians = {side: {what: statistics.median(each) for what, each in found.items()} for side, found in runs.items()}
    pairs = {what: zip(runs["now"][what], runs["before"][what], strict=True) for what in medians["now"]}
    result = {
        **machine.described(1),
        "rounds": given.rounds,
        **{side: {what: round(each, 4) for what, each in found.items()} for side, found in medians.items()},
        "ratio": {what: round(medians["now"][what] / medians["before"][what], 3) for what in medians["now"]},
        "ratios of the pairs": {what: [round(now / before, 3) for now, before in each] for what, each in pairs.items()},
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
