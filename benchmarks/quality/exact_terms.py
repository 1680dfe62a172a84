"""What exact terms add to search: rare words, numbers and codes of the question (`retrieval.query.exact_terms`).

    python benchmarks/quality/exact_terms.py --pdfs FOLDER [--questions FILE] [--home DIR] [--answers]

The questions of `real_documents.py`, asked of all documents with and without exact terms, in one run. By type of
question: whether the best block is of the right file (file), whether it holds the answer (first), whether one of the
best eight does (eight); with `--answers` also whether the sentence given holds it (answer, lists by their share of
items), or one of those shown beside it (shown).
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
from real_documents import QUESTIONS, asked, home_folder, plain, store

from app.assembly import open_library
from app.settings import load_settings
from retrieval.library import Library
from retrieval.query import search

SHIPPED = search.EXACT_SHARE
SHARES = {"without exact terms": 0.0, "with exact terms": SHIPPED}
OF_SEARCH, OF_ANSWERS = ("file", "first", "eight"), ("answer", "shown")
DEPTH = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, required=True, help="folder with the documents that the questions name")
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--home", type=Path, help="keep the library there; documents stored already are not read again")
    parser.add_argument("--model", help="folder of a checkpoint (default: the shipped one)")
    parser.add_argument("--every", type=int, default=1, help="ask only every so many questions")
    parser.add_argument("--answers", action="store_true", help="answer the questions, too")
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    rows = [json.loads(line) for line in arguments.questions.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows[:: arguments.every] if row["answers"]]
    with home_folder(arguments.home) as home:
        given = {"home": home} | ({"model": arguments.model} if arguments.model else {})
        with open_library(load_settings(**given)) as library:
            documents = {
                name: store(library, arguments.pdfs / name) for name in sorted({row["document"] for row in rows})
            }
            for side, share in SHARES.items():
                search.EXACT_SHARE = share
                report(side, [measured(library, row, documents, answers=arguments.answers) for row in rows])


def measured(library: Library, row: dict[str, Any], documents: dict[str, str], *, answers: bool) -> dict[str, Any]:
    workspace = library._workspace
    with workspace.scheduler.question_open(), library._index.open_snapshot(workspace.catalogue) as snapshot:
        found = search.find_blocks(workspace, snapshot, row["question"], DEPTH, None)
        ids = snapshot.blocks.ids_N[found.positions_C.numpy()].tolist()
    blocks, model = workspace.catalogue.blocks_by_id(ids), workspace.loaded().model
    wanted = [f" {plain(answer)} " for answer in row["answers"]]
    held = [any(one in f" {plain(model.decode(blocks[id_].tokens))} " for one in wanted) for id_ in ids]
    figures = {
        "type": row["type"],
        "file": float(blocks[ids[0]].document_id == documents[row["document"]]),
        "first": float(held[0]),
        "eight": float(any(held)),
    }
    if answers:
        given = asked(library, row, documents, alone=False)
        figures |= {column: given[column] for column in OF_ANSWERS}
    return figures


def report(side: str, records: list[dict[str, Any]]) -> None:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        groups["all answerable"].append(record)
        groups[record["type"]].append(record)
    columns = [column for column in (*OF_SEARCH, *OF_ANSWERS) if column in records[0]]
    print(f"\n{side}\n{'':16}{'n':>5}" + "".join(f"{column:>10}" for column in columns))
    for name, group in groups.items():
        means = (statistics.mean(record[column] for record in group) for column in columns)
        print(f"{name:16}{len(group):5}" + "".join(f"{mean:10.3f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()
