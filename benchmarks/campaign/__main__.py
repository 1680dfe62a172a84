"""Everything that could go wrong with what is stored, many times: kills, damage, failing disks, other models, clocks.

    make campaign                          # the sizes below, hours
    python benchmarks/campaign --share 0.02

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
    (("benchmarks/campaign/crash.py",), "--kills", 1000),
    (("benchmarks/campaign/corruption.py",), "--damages", 10_000),
    (("benchmarks/campaign/failing_disk.py",), "--failures", 500),
    (("benchmarks/campaign/clocks.py",), "--jumps", 500),
    (("benchmarks/campaign/duplicates.py",), "--rounds", 100),
    (("benchmarks/campaign/odd_pdfs.py",), "--files", 1000),
    (("benchmarks/campaign/machines.py", "--every", "10", "--lease", "5"), "--documents", 500),
)
ONCE = ("benchmarks/campaign/fingerprints.py",)


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
