"""Random damage to the stored memory of a real library: is it found before a token that used it is shown?

    python tests/stress/corruption.py --damages 1000

A library of a few documents, read by a tiny random model, is damaged again and again: flipped bits, header bytes,
landmark rows, tables, overwritten stretches, truncations, swapped blocks, swapped files; a damage in each document,
before the library is repaired. Each damaged document is asked with every block of it read by every layer and head,

- through a library that was open before and keeps next to nothing in RAM: it must refuse, naming document and repair
  command, before the first token; or, where it needs the damaged bytes no more (landmarks are in RAM), answer as ever;
- through a library opened anew: it must refuse, naming a damaged document (the first that it meets).

`--reads`: so many further damages are not asked about, but the damaged files are read as attention reads them, which is
a hundred times faster: all landmarks, lengths, keys and values, of which not one may be handed out.

After each round `repair` must make landmarks, keys and values what they were, byte by byte, or else the answer. Prints
one JSON object; exit status 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
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
from retrieval.types.answers import Answer
from retrieval.types.records import Scope
from storage.errors import DamagedMemory as StoredDamage
from storage.kv.format import KV_DTYPES
from storage.kv.store import KVBlockStore
from tests.retrieval.conftest import prose
from tests.retrieval.damages import DAMAGERS, Damager, header_of
from tests.retrieval.reading_here import ReadingHere
from tests.tiny_model import tiny_model

SHARD_BYTES = 20_000
DOCUMENTS = 8
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
            path.write_text(prose(100 + number, 250 + 50 * number))
            job = self.library.jobs.run(self.library.documents.submit(path).id)
            assert job.state == "done" and job.blocks < EVERY_BLOCK, job
        self.sources = {document.id: document.source for document in self.library.documents.list()}
        self.calm = {document_id: self._answer(self.library, document_id) for document_id in self.sources}

    def _open(self) -> Library:
        return Library.open(self.home, self.model, kv_dtype=self.kv_dtype, shard_bytes=SHARD_BYTES, block_cache_bytes=1)

    def _answer(self, library: Library, document_id: str) -> list:
        """Tokens and passages of the finished answer."""
        *tokens, answer = library.ask(QUESTION, k=EVERY_BLOCK, max_tokens=2, within=Scope((document_id,)))
        assert isinstance(answer, Answer)
        return [[(token.token_id, token.logprob) for token in tokens], [each.text for each in answer.passages]]

    def _outcome(self, library: Library, document_id: str, named: set[str]) -> Outcome:
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
            clear = "cairn repair" in str(error) and any(source in str(error) for source in named)
            return "refused" if clear else "refused unclearly"
        raise AssertionError("no answer came")

    def _contents(self) -> dict[str, list[bytes]]:
        """What each document's files hold: all but headers and checksums, into which their names go."""
        contents: dict[str, list[bytes]] = {}
        for path, content in self._files().items():
            header = header_of(path)
            held = content[header.lengths.offset : header.checksums.offset] + content[header.pieces_offset :]
            contents.setdefault(path.parent.name, []).append(held)
        return {document_id: sorted(found) for document_id, found in contents.items()}

    def _files(self) -> dict[Path, bytes]:
        return {each: each.read_bytes() for each in sorted((self.home / "kv").rglob("*.kv"))}

    def round(self, damages: Sequence[Damager]) -> int:
        """Damage documents, ask each twice, repair all. Returns how many of the damages were done: each takes a
        document that is still whole."""
        before, contents, kinds, done = self._files(), self._contents(), dict[str, str](), 0
        for damage in damages:
            whole = [path for path in before if path.parent.name not in kinds]
            if not whole:
                break
            earlier = self._files()
            damage(self.random.choice(whole), self.random)
            changed = {path.parent.name for path, content in self._files().items() if earlier[path] != content}
            assert changed, "the damage changed nothing"
            kinds |= dict.fromkeys(changed, damage.__name__)
            done += 1
        for document_id, kind in sorted(kinds.items()):
            self._note(
                kind,
                "open library",
                self._outcome(self.library, document_id, {self.sources[document_id]}),
                may_answer=True,
            )
        names = {self.sources[document_id] for document_id in kinds}
        with self._open() as fresh:
            for document_id, kind in sorted(kinds.items()):
                self._note(kind, "fresh library", self._outcome(fresh, document_id, names), may_answer=False)
        self._repair(kinds, contents)
        return done

    def read(self, damage: Damager) -> None:
        """One damage, read by a store opened anew, and taken back."""
        before = self._files()
        damage(self.random.choice(list(before)), self.random)
        changed = {path: content for path, content in before.items() if path.read_bytes() != content}
        assert changed, "the damage changed nothing"
        loaded = self.library.view.workspace.loaded()
        store = KVBlockStore(self.home / "kv", loaded.layout, loaded.fingerprint.digest)
        for path, content in changed.items():
            outcome = "read" if _reads_all(store, f"{path.parent.name}/{path.name}") else "refused"
            self.outcomes[f"store: {outcome}"] += 1
            if outcome != "refused":
                self.violations.append(f"{damage.__name__}, store: {outcome}")
            path.write_bytes(content)

    def _repair(self, kinds: Mapping[str, str], before: Mapping[str, list[bytes]]) -> None:
        repaired = set(self.library.maintenance.repair().repaired)
        names = {self.sources[document_id] for document_id in kinds}
        if repaired != names or not self.library.maintenance.verify().ok:
            self.violations.append(f"{kinds}: damaged {sorted(names)}, repaired {sorted(repaired)}")
        after = self._contents()
        for document_id, kind in kinds.items():
            same = before[document_id] == after[document_id]
            self.outcomes[f"repaired: {'every byte as before' if same else 'other bytes'}"] += 1
            asked = not same or document_id == min(kinds)  # one at least: it brings all landmarks back into RAM
            if asked and self._answer(self.library, document_id) != self.calm[document_id]:
                self.violations.append(f"{kind}: {self.sources[document_id]} answers otherwise after its repair")

    def _note(self, kind: str, where: str, outcome: Outcome, *, may_answer: bool) -> None:
        self.outcomes[f"{where}: {outcome}"] += 1
        if outcome != "refused" and not (may_answer and outcome == "answered as ever"):
            self.violations.append(f"{kind}, {where}: {outcome}")


def _reads_all(store: KVBlockStore, name: str) -> bool:
    try:
        blocks = [(name, block) for block in range(len(store.lengths(name)))]
        store.landmarks(name)
        for layer in store.layout.layers:
            store.read_many(blocks, layer)
    except StoredDamage:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--damages", type=int, default=1000)
    parser.add_argument("--reads", type=int, default=0, help="further damages, which are read and not asked about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="and then stop, however far it came")
    parser.add_argument("--kv-dtype", choices=KV_DTYPES, default="bf16")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    extract.SANDBOX = ReadingHere()
    began = time.monotonic()
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="cairn-corruption-") as folder:
        corrupter = Corrupter(Path(folder), arguments.seed, arguments.kv_dtype)
        ends = began + 60 * arguments.minutes
        while (done := kinds.total()) < arguments.damages and time.monotonic() < ends:
            coming = [DAMAGERS[n % len(DAMAGERS)] for n in range(done, min(done + DOCUMENTS, arguments.damages))]
            kinds.update(damage.__name__ for damage in coming[: corrupter.round(coming)])
        reads = 0
        while reads < arguments.reads and time.monotonic() < ends:
            corrupter.read(DAMAGERS[reads % len(DAMAGERS)])
            reads += 1
        corrupter.library.close()
    result = {
        **machine.described(1),
        "damages": kinds.total(),
        "reads": reads,
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
