"""Everything that could go wrong with what is stored, many times: kills, damage, failing disks, clocks, questions.

    make stress                          # the sizes below, hours
    python tests/stress --share 0.02

Each part is a program of its own, which prints one JSON object and fails if anything did not hold. docs/reliability.md
has what was found.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS: tuple[tuple[tuple[str, ...], str, int], ...] = (
    (("-m", "tests.storage.crash"), "--kills", 1000),
    (("tests/stress/crash.py",), "--kills", 1000),
    (("tests/stress/corruption.py",), "--damages", 10_000),
    (("tests/stress/failing_disk.py",), "--failures", 500),
    (("tests/stress/clocks.py",), "--jumps", 500),
    (("tests/stress/duplicates.py",), "--rounds", 100),
    (("tests/stress/askers.py", "--askers", "8"), "--answers", 1000),
    (("tests/stress/askers.py", "--askers", "1"), "--answers", 10_000),
    (("tests/stress/askers.py", "--askers", "50", "--at-once", "4", "--shipped"), "--answers", 100),
    (("tests/stress/odd_pdfs.py",), "--files", 1000),
    (("tests/stress/machines.py", "--every", "10", "--lease", "5"), "--documents", 500),
    (("tests/stress/cluster.py", "--nodes", "2"), "--files", 200),
)
ONCE = ("tests/stress/fingerprints.py",)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the full sizes")
    share = parser.parse_args().share
    commands = [[*program, option, str(max(1, round(size * share)))] for program, option, size in PARTS] + [[*ONCE]]
    failed = []
    for command in commands:
        print("$ python", *command, flush=True)
        if subprocess.run([sys.executable, *command], cwd=ROOT).returncode:
            failed.append(command[-3] if len(command) > 2 else command[0])
    print(f"{len(commands) - len(failed)} of {len(commands)} held.", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
