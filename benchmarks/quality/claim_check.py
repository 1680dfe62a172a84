"""How often is the check of claims right? Made claims about real PDFs: true ones in other words, the same with one
figure or one name changed, and statements that the documents do not make.

    python benchmarks/quality/claim_check.py --pdfs FOLDER [--claims FILE.jsonl] [--show]

Every claim is looked up in a library of all the documents, as the sentences of an answer are. Thresholds were chosen on
two of the documents (`tuned`); the others (`held out`) were not looked at. By kind of claim, the share of each verdict:
a true claim should be supported, any other should not be. Claims with their format: benchmarks/questions/README.md.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from app.assembly import open_library
from app.settings import load_settings
from retrieval.writers.claims import ClaimChecker

CLAIMS = ROOT / "benchmarks" / "questions" / "claims.jsonl"
TUNED = ("paper-jose-00118.pdf", "textbook-chapter-openstax-psychology-memory.pdf")
VERDICTS = ("supported", "partly", "not_found")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, required=True, help="folder with the PDFs that the claims name")
    parser.add_argument("--claims", type=Path, default=CLAIMS)
    parser.add_argument("--home", type=Path, help="keep the library here instead of making it anew")
    parser.add_argument("--show", action="store_true", help="print every claim that was judged wrongly")
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    claims = [json.loads(line) for line in arguments.claims.read_text(encoding="utf-8").splitlines()]
    with tempfile.TemporaryDirectory() as temporary:
        home = arguments.home or Path(temporary)
        with open_library(load_settings(home=home)) as library:
            for name in sorted({claim["document"] for claim in claims}):
                job = library.jobs.run(library.documents.submit(arguments.pdfs / name).id)
                assert job.state == "done", job.error
            library.warm_up()
            checker = ClaimChecker(library.view.workspace, library.view.index, library.view.passages, None)
            verdicts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
            seconds = []
            for claim in claims:
                begun = time.perf_counter()
                support = checker.support(claim["claim"])
                seconds.append(time.perf_counter() - begun)
                verdict = support.verdict if support else "not_found"
                part = "tuned" if claim["document"] in TUNED else "held out"
                verdicts[part, claim["kind"]][verdict] += 1
                if arguments.show and (verdict == "supported") != (claim["kind"] == "true"):
                    found = f"{support.coverage:.2f} {support.missing} {support.sentence.text[:150]}" if support else ""
                    print(f"{part} {claim['kind']:7} {verdict:10} {claim['claim']}\n    {found!r}")
    print(table(verdicts))
    print(f"{statistics.median(seconds):.3f} s a claim (median)")


def table(verdicts: dict[tuple[str, str], Counter[str]]) -> str:
    lines = ["| | claims | " + " | ".join(VERDICTS) + " |", "|---|---:|" + "---:|" * len(VERDICTS)]
    for part in ("tuned", "held out"):
        for kind in ("true", "number", "name", "unsaid"):
            counts = verdicts[part, kind]
            shares = " | ".join(f"{counts[verdict] / max(1, counts.total()):.2f}" for verdict in VERDICTS)
            lines.append(f"| {part}, {kind} | {counts.total()} | {shares} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
