"""Public sets that nothing was trained on, beside published figures: search, answers from a passage, cells of tables.

    python benchmarks/quality/yardsticks.py --data FOLDER [--sets scifact legalquad xquad squadshifts tables]
        [--questions 300] [--languages en de zh] [--home DIR]

- `scifact`, `legalquad`, `xquad` (`FOLDER/search`): nDCG@10. Every text is a document of one collection (for XQuAD one
  for each language), and documents rank in the order in which `search` shows their first passage. Beside them stand the
  published figures of `published_ndcg10.json`.
- `squadshifts` (`FOLDER/reading`): F1 and exact match of the words that an answer marks, each question asked of its
  passage alone.
- `tables`: TAT-QA (spans, and cells that need no arithmetic) and AIT-QA: how often the answer given holds
  every expected value, each question asked of its own page, a table of HTML before its paragraphs.
- `sentences`: how long the sentences of XQuAD's paragraphs are, and how many answers lie whole in one, by language.

`--questions`: so many of each set, drawn once. `--home` keeps the library, so that a second run reads nothing again.
"""

import argparse
import html
import json
import math
import random
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "quality")]

import machine
from answer_quality import asked, store

from app.assembly import open_library
from app.settings import load_settings
from model.scoring.sentences import sentence_borders
from research.train.data.corpus import read_jsonl
from research.train.evaluation.answer_scores import exact_and_f1, holds
from retrieval.library import Library
from retrieval.types.records import Scope

SEARCHED, PASSAGES = 10, 50
NAMES = {
    "scifact": "SciFact (test, 300 queries)",
    "legalquad": "LegalQuAD (200 queries, German)",
    "xquad": "XQuADRetrieval",
}
Row = dict[str, Any]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True, help="folder with search/ and reading/")
    options.add_argument("--sets", nargs="+", default=[*NAMES, "squadshifts", "tables"])
    options.add_argument("--questions", type=int, default=300)
    options.add_argument("--languages", nargs="+", default=["en", "es", "de", "ru", "zh"], help="of XQuAD")
    options.add_argument("--home", type=Path)
    given = options.parse_args()
    print(json.dumps(machine.described()))
    with tempfile.TemporaryDirectory() as folder:
        home = given.home or Path(folder)
        with open_library(load_settings(home=home / "library")) as library:
            for name in given.sets:
                yardstick = Yardstick(library, given.data, home / name, given.questions)
                if name == "squadshifts":
                    yardstick.passages()
                elif name == "tables":
                    yardstick.tables()
                elif name == "sentences":
                    yardstick.sentences()
                else:
                    for language in given.languages if name == "xquad" else [""]:
                        yardstick.search(name, language)


class Yardstick:
    def __init__(self, library: Library, data: Path, files: Path, questions: int) -> None:
        self.library, self.data, self.files, self.questions = library, data, files, questions

    def drawn(self, rows: Sequence[Row]) -> list[Row]:
        return random.Random(0).sample(list(rows), min(self.questions, len(rows)))

    def stored(self, name: str, text: str, collection: str | None = None, folder: str = "") -> str:
        """Id of a text under a name, at most once."""
        return store(self.library, self.files / folder / f"{name_of(name)}", text, collection)

    def search(self, name: str, language: str) -> None:
        corpus = [row for row in self._of(name, "corpus") if row.get("lang", "") == language]
        relevant: dict[str, dict[str, int]] = defaultdict(dict)
        for row in self._of(name, "qrels"):
            if row.get("split", "test") == "test":
                relevant[row["query_id"]][row["corpus_id"]] = row["score"]
        queries = [
            row for row in self._of(name, "queries") if row["_id"] in relevant and row.get("lang", "") == language
        ]
        label = f"{name}{language and f' {language}'}"
        known = [one for one in self.library.collections.list() if one.name == label]
        collection = (known[0] if known else self.library.collections.create(label)).id
        of = {
            self.stored(f"{row['title'] or row['_id']}.txt", row["text"], label, row["_id"]): row["_id"]
            for row in corpus
        }
        scores = [
            ndcg([of[one] for one in self._ranked(row["text"], collection)], relevant[row["_id"]])
            for row in self.drawn(queries)
        ]
        published = json.loads((self.data / "search" / "published_ndcg10.json").read_text(encoding="utf-8"))["scores"]
        others = {
            model: value for model, value in beside(published[NAMES[name]], language).items() if value is not None
        }
        print(f"{label}: nDCG@10 {100 * mean(scores):.1f} over {len(scores)} queries; published {others}", flush=True)

    def _ranked(self, text: str, collection: str) -> list[str]:
        found = self.library.search(text, k=PASSAGES, within=Scope(collection_ids=(collection,)))
        return list(dict.fromkeys(passage.document_id for passage in found))[:SEARCHED]

    def _of(self, name: str, part: str) -> list[Row]:
        return list(read_jsonl(self.data / "search" / f"{name}.{part}.jsonl.xz"))

    def passages(self) -> None:
        for kind in ("new_wiki", "amazon", "reddit"):
            marks = []
            for row in self.drawn(list(read_jsonl(self.data / "reading" / f"squadshifts_{kind}.test.jsonl.xz"))):
                document = self.stored(f"{row['id']}.txt", row["context"])
                answer = asked(self.library, row["question"], Scope(document_ids=(document,)), quote=True)
                said = answer.short if answer.found else ""
                marks.append((*exact_and_f1(said, row["answers"]), float(holds(answer.text, row["answers"]))))
            exact, f1, held = (mean(column) for column in zip(*marks, strict=True))
            print(
                f"squadshifts {kind}: F1 {f1:.3f}, exact {exact:.3f}, the sentence holds it {held:.3f} ({len(marks)})"
            )

    def sentences(self) -> None:
        of_language: dict[str, list[Row]] = defaultdict(list)
        for row in read_jsonl(self.data / "reading" / "xquad.test.jsonl.xz"):
            of_language[row["lang"]].append(row)
        for language, rows in sorted(of_language.items()):
            borders = {row["context"]: list(sentence_borders(row["context"])) for row in rows}
            lengths = [end - start for each in borders.values() for start, end in each]
            answers = [
                any(start <= at and at + len(answer) <= end for start, end in borders[row["context"]])
                for row in rows
                for at, answer in zip(row["answer_starts"], row["answers"], strict=True)
            ]
            whole = mean([float(answer) for answer in answers])
            print(
                f"{language}: {len(borders)} paragraphs, {mean(lengths):.0f} characters a sentence, whole {whole:.3f}"
            )

    def tables(self) -> None:
        for kind in ("tatqa_test", "aitqa"):
            rows = list(read_jsonl(self.data / "reading" / f"{kind}.test.jsonl.xz"))
            rows = [row for row in rows if row.get("answer_type") not in ("arithmetic", "count")]
            marks = []
            for row in self.drawn(rows):
                document = self.stored(f"{row['id']}.html", page_of(row))
                answer = asked(self.library, row["question"], Scope(document_ids=(document,)), quote=True)
                texts = [answer.text, *(one.passage.text for one in answer.other_sentences)]
                held = [all(value_in(text, value) for value in row["answers"]) for text in texts]
                marks.append((float(held[0]), float(any(held)), float(not answer.found)))
            given, shown, refused = (mean(column) for column in zip(*marks, strict=True))
            print(
                f"{kind}: answer {given:.3f}, one of four {shown:.3f}, refused {refused:.3f} ({len(marks)})", flush=True
            )


def name_of(title: str) -> str:
    """A file name, its ending kept."""
    name, _, ending = title.rpartition(".")
    return f"{re.sub(r'[^ -~]|/', ' ', name).strip()[:100] or 'text'}.{ending}"


def beside(published: dict[str, Any], language: str) -> dict[str, float | None]:
    return {
        model: (value or {}).get(language) if isinstance(value, dict) or language else value
        for model, value in published.items()
    }


def ndcg(ranked: Sequence[str], relevant: dict[str, int]) -> float:
    """nDCG of a ranking, with gains as they are judged."""
    ideal = sorted(relevant.values(), reverse=True)[:SEARCHED]
    return discounted(relevant.get(one, 0) for one in ranked) / discounted(ideal)


def discounted(gains: Iterable[int]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def page_of(row: Row) -> str:
    """The table of a question before its paragraphs, as a web page."""
    table = row["table"]
    lines = [
        "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
        for tag, cells in (("th", table["header"]), *(("td", each) for each in table["rows"]))
    ]
    caption = f"<caption>{html.escape(table['caption'])}</caption>" if table.get("caption") else ""
    paragraphs = "".join(
        f"<p>{html.escape(each)}</p>" for each in (row.get("context") or "").split("\n") if each.strip()
    )
    return f"<!doctype html><meta charset=utf-8><body><table>{caption}{''.join(lines)}</table>{paragraphs}</body>"


def value_in(text: str, value: str) -> bool:
    """Whether a value stands in a text, figures as figures: not inside a longer one."""
    plain = [re.sub(r"[\s$€£%]+", " ", each).strip() for each in (text, value)]
    return re.search(rf"(?<![\w.,]){re.escape(plain[1])}(?![\w]|[.,]\d)", plain[0], re.IGNORECASE) is not None


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


if __name__ == "__main__":
    main()
