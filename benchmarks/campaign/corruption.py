"""Random damage to the stored memory of a real library: is it found before a token that used it is shown?

    python benchmarks/campaign/corruption.py --damages 1000

A library of a few documents, read by a tiny random model, is damaged again and again: flipped bits, header bytes,
landmark rows, tables, overwritten stretches, truncations, swapped blocks, swapped files. After each damage the damaged
document is asked with every block of it read by every layer and head,

- through a library that was open before and keeps next to nothing in RAM: it must refuse, naming document and repair
  command, before the first token; or, where it needs the damaged bytes no more (landmarks are in RAM), answer as ever;
- through a library opened anew: it must refuse.

Then `repair` must make the answer what it was. Prints one JSON object; exit status 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
import machine
import torch

from retrieval.errors import DamagedMemory
from retrieval.extraction import extract
from retrieval.library import Library
from retrieval.types.passages import Answer
from retrieval.types.records import Scope
from storage.kv.format import KV_DTYPES
from tests.retrieval.conftest import prose
from tests.retrieval.damages import DAMAGERS, Damager
from tests.retrieval.reading_here import ReadingHere
from tests.tiny_model import tiny_model

SHARD_BYTES = 20_000
DOCUMENTS = 4
QUESTION = "What does the keeper of the tower carry?"
EVERY_BLOCK = 200  # more than any of the documents has
Outcome = Literal["refused", "answered as ever", "answered otherwise", "refused after a token", "refused unclearly"]


class Corrupter:
    """Damages one library and examines what it then says."""

    def __init__(self, folder: Path, seed: int, kv_dtype: str):
        self.random, self.kv_dtype = Random(seed), kv_dtype
        self.home = folder / "home"
        self.model = tiny_model(block_size=16, window_blocks=4, context_blocks=2)
        self.outcomes: Counter[str] = Counter()
        self.violations: list[str] = []
        self.library = self._open()
        for number in range(DOCUMENTS):
            path = folder / f"text-{number}.txt"
            path.write_text(prose(100 + number, 300 + 150 * number))
            job = self.library.run_job(self.library.submit(path).id)
            assert job.state == "done" and job.blocks < EVERY_BLOCK, job
        self.sources = {document.id: document.source for document in self.library.documents()}
        self.calm = {document_id: self._answer(self.library, document_id) for document_id in self.sources}

    def _open(self) -> Library:
        return Library.open(self.home, self.model, kv_dtype=self.kv_dtype, shard_bytes=SHARD_BYTES, hot_bytes=1)

    def _answer(self, library: Library, document_id: str) -> list:
        """Tokens and passages of the finished answer."""
        *tokens, answer = library.ask(QUESTION, k=EVERY_BLOCK, max_tokens=2, within=Scope((document_id,)))
        assert isinstance(answer, Answer)
        return [[(token.token_id, token.logprob) for token in tokens], [each.text for each in answer.passages]]

    def _outcome(self, library: Library, document_id: str, sources: set[str]) -> Outcome:
        shown = 0
        try:
            tokens = []
            for item in library.ask(QUESTION, k=EVERY_BLOCK, max_tokens=2, within=Scope((document_id,))):
                if isinstance(item, Answer):
                    found = [tokens, [each.text for each in item.passages]]
                    return "answered as ever" if found == self.calm[document_id] else "answered otherwise"
                tokens.append((item.token_id, item.logprob))
                shown += 1
        except DamagedMemory as error:
            if shown:
                return "refused after a token"
            clear = "cairn repair" in str(error) and any(source in str(error) for source in sources)
            return "refused" if clear else "refused unclearly"
        raise AssertionError("no answer came")

    def round(self, damage: Damager) -> None:
        """One damage, asked about twice, then repaired."""
        path = self.random.choice(sorted((self.home / "kv").rglob("*.kv")))
        before = {each: each.read_bytes() for each in (self.home / "kv").rglob("*.kv")}
        damage(path, self.random)
        changed = {each for each, content in before.items() if each.read_bytes() != content}
        ids = {each.parent.name for each in changed}
        assert ids, "the damage changed nothing"
        names = {self.sources[document_id] for document_id in ids}
        kind = damage.__name__
        for document_id in sorted(ids):
            self._note(kind, "open library", self._outcome(self.library, document_id, names), may_answer=True)
        with self._open() as fresh:
            self._note(kind, "fresh library", self._outcome(fresh, min(ids), names), may_answer=False)
        repaired = set(self.library.repair().repaired)
        if repaired != names or not self.library.verify().ok:
            self.violations.append(f"{kind}: damaged {sorted(names)}, repaired {sorted(repaired)}")
        for document_id in sorted(ids):
            if self._answer(self.library, document_id) != self.calm[document_id]:
                self.violations.append(f"{kind}: {self.sources[document_id]} answers otherwise after its repair")

    def _note(self, kind: str, where: str, outcome: Outcome, *, may_answer: bool) -> None:
        self.outcomes[f"{where}: {outcome}"] += 1
        if outcome != "refused" and not (may_answer and outcome == "answered as ever"):
            self.violations.append(f"{kind}, {where}: {outcome}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kv-dtype", choices=KV_DTYPES, default="bf16")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    extract._SANDBOX = ReadingHere()
    began = time.monotonic()
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="cairn-corruption-") as folder:
        corrupter = Corrupter(Path(folder), arguments.seed, arguments.kv_dtype)
        for number in range(arguments.damages):
            damage = DAMAGERS[number % len(DAMAGERS)]
            kinds[damage.__name__] += 1
            corrupter.round(damage)
        corrupter.library.close()
    result = {
        **machine.described(1),
        "damages": arguments.damages,
        "kv_dtype": arguments.kv_dtype,
        "kinds": dict(kinds),
        "outcomes": dict(sorted(corrupter.outcomes.items())),
        "violations": corrupter.violations,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(result))
    return 1 if corrupter.violations else 0


if __name__ == "__main__":
    sys.exit(main())
