"""What the reader's "not here" and the scores of search are worth together, and the weights of `doubt` in its config.

    python benchmarks/quality/doubt_weights.py --pdfs FOLDER [--questions FILE] [--home DIR] [--confirm-pdfs FOLDER
    --confirm FILE] [--wrongly-refused 0.03]

Every question of `real_documents.py` is asked twice: of the whole library, and of the library without its document,
where it has no answer. Two logistic regressions (`model.reading.doubt`), each with as much weight for either kind: does
an answer stand among the passages, and is the sentence quoted right? They are fitted on the documents of one half and
judged on the other, both ways round; then on all, and judged on the questions of `--confirm`. Printed are areas under
the ROC curve beside those of the reader's figures alone, and who is refused with the threshold that refuses the given
share of the answerable questions of the fitted half; last what belongs into the reader's config.json.
"""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import torch
from answer_threshold import separation
from real_documents import QUESTIONS, home_folder, marks, store

from app.assembly import open_library
from app.settings import load_settings
from model.reading.doubt import Signs
from retrieval.library import Library
from retrieval.query.question import Question
from retrieval.query.quotation.sentence_search import best_sentences, quoting_from
from retrieval.query.retrieve import retrieve
from retrieval.types.defaults import DEFAULT_K
from retrieval.types.records import Scope

SHRINK = 0.01
"""Of the squared weights, beside the mean loss of a question."""


@dataclass(frozen=True)
class Asked:
    """What is known of the answer to a question. `has_answer`: the library holds one; `is_right`: the sentence does."""

    document: str
    signs: Signs
    has_answer: bool
    is_right: bool
    unanswerable: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pdfs", type=Path, required=True, help="folder with the PDFs that the questions name")
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--home", type=Path, help="keep the library there; documents stored already are not read again")
    parser.add_argument("--confirm-pdfs", type=Path, help="folder with the documents of --confirm")
    parser.add_argument("--confirm", type=Path, help="questions about other documents, for judging only")
    parser.add_argument("--model", help="folder of a checkpoint with a reader (default: the shipped one)")
    parser.add_argument("--wrongly-refused", type=float, default=0.03)
    parser.add_argument("--every", type=int, default=1, help="ask only every so many questions")
    arguments = parser.parse_args()
    print(json.dumps(machine.described()))
    asked = ask_all(arguments.questions, arguments.pdfs, arguments.home, arguments.model, arguments.every)
    documents = sorted({each.document for each in asked})
    first = set(documents[: len(documents) // 2])
    halves = [[each for each in asked if (each.document in first) is half] for half in (True, False)]
    print(f"the first half are about {', '.join(sorted(first))}")
    for name, fitted, judged in (("first half -> second", *halves), ("second half -> first", *halves[::-1])):
        report(name, judged, fit(fitted, arguments.wrongly_refused))
    weights = fit(asked, arguments.wrongly_refused)
    report("all -> all (no held-out figure)", asked, weights)
    if arguments.confirm:
        others = ask_all(arguments.confirm, arguments.confirm_pdfs, None, arguments.model, 1)
        report("all -> other documents", others, weights)
    print(json.dumps({"doubt": weights}))


def ask_all(questions: Path, pdfs: Path, home: Path | None, model: str | None, every: int) -> list[Asked]:
    rows = [json.loads(line) for line in questions.read_text(encoding="utf-8").splitlines()][::every]
    with home_folder(home) as folder:
        given = {"home": folder} | ({"model": model} if model else {})
        with open_library(load_settings(**given)) as library:
            ids = {name: store(library, pdfs / name) for name in sorted({row["document"] for row in rows})}
            return [each for row in rows for own in (True, False) if (each := ask(library, row, ids, own)) is not None]


def ask(library: Library, row: dict[str, Any], ids: dict[str, str], own: bool) -> Asked | None:
    """None where nothing can be quoted."""
    workspace, index, passages = library._workspace, library._index, library._passages
    look = workspace.loaded().second_look
    if look is None:
        raise SystemExit("This checkpoint has no reader, so there is nothing to weigh.")
    others = Scope(document_ids=tuple(id_ for name, id_ in ids.items() if name != row["document"]))
    question = Question(text=row["question"], k=DEFAULT_K, anyway=True, scope=None if own else others)
    with workspace.scheduler.question_open(), index.open_snapshot(workspace.catalogue) as snapshot:
        retrieved = retrieve(workspace, index, snapshot, question)
        quoting = quoting_from(workspace, passages, retrieved.candidates)
        found = retrieved.found
        best = best_sentences(
            workspace,
            index,
            passages,
            found,
            retrieved.candidates,
            quoting,
            1,
            read=lambda p: look.read(row["question"], p),
        )[0]
        if not best.places or best.chance is None or best.not_here is None:
            return None
        document, start, _ = quoting.place(*best.places[0])
        text = passages.text(document)[start : quoting.place(*best.places[-1])[2]]
    signs = Signs(best.not_here, best.chance, found.confidence, best.score, found.unmatched)
    right = own and marks(row)([text]) >= 0.5
    return Asked(row["document"], signs, own and bool(row["answers"]), right, own and not row["answers"])


def figures(signs: Signs) -> tuple[list[float], list[float]]:
    """What the two regressions weigh, see `Doubt`."""
    not_here = min(max(signs.not_here, 1e-5), 1 - 1e-5)
    odds = math.log(not_here / (1 - not_here))
    return [1.0, odds, signs.block, signs.unmatched], [1.0, odds, math.log(max(signs.chance, 1e-5)), signs.sentence]


def fit(asked: Sequence[Asked], wrongly_refused: float) -> dict[str, Any]:
    """`doubt` of a reader's config.json. Of answers that are not right, wrong ones to answerable questions and those
    to questions without an answer count as much."""
    answerable = [each.has_answer for each in asked]
    none = regression([figures(each.signs)[0] for each in asked], [not one for one in answerable], answerable)
    right = regression([figures(each.signs)[1] for each in asked], [each.is_right for each in asked], answerable)
    chances = sorted(chance(none, figures(each.signs)[0]) for each in asked if each.has_answer)
    above = chances[min(len(chances) - 1, int((1 - wrongly_refused) * len(chances)))]
    return {"none": none, "right": right, "none_above": round(above, 3), "sure_above": 0.5}


def regression(rows: Sequence[Sequence[float]], wanted: Sequence[bool], parts: Sequence[bool]) -> list[float]:
    """Weights; wanted and other rows count as much together, and so do the parts of either."""
    x_QF, y_Q = torch.tensor(rows), torch.tensor(wanted).float()
    sizes = Counter(zip(wanted, parts, strict=True))
    in_parts = Counter(one for one, _ in sizes)
    weight_Q = torch.tensor(
        [1 / (2 * in_parts[one] * sizes[one, part]) for one, part in zip(wanted, parts, strict=True)]
    )
    weights_F = torch.zeros(x_QF.shape[1], requires_grad=True)
    scale_F = x_QF.std(0).clamp_min(1e-6)
    scale_F[0] = 1.0
    optimizer = torch.optim.LBFGS([weights_F], max_iter=300)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        logits_Q = (x_QF / scale_F) @ weights_F
        losses_Q = torch.nn.functional.binary_cross_entropy_with_logits(logits_Q, y_Q, reduction="none")
        loss = (losses_Q * weight_Q).sum() + SHRINK * weights_F[1:].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return [round(value, 3) for value in (weights_F.detach() / scale_F).tolist()]


def chance(weights: Sequence[float], row: Sequence[float]) -> float:
    return 1 / (1 + math.exp(-sum(weight * value for weight, value in zip(weights, row, strict=True))))


def report(name: str, asked: Sequence[Asked], doubt: dict[str, Any]) -> None:
    answerable = [each for each in asked if each.has_answer]
    kinds = {
        "no answer in the document": [each for each in asked if each.unanswerable],
        "document not stored": [each for each in asked if not each.has_answer and not each.unanswerable],
    }
    right, wrong = ([each for each in answerable if each.is_right is value] for value in (True, False))

    def none(group: Sequence[Asked]) -> list[float]:
        return [chance(doubt["none"], figures(each.signs)[0]) for each in group]

    def sure(group: Sequence[Asked]) -> list[float]:
        return [chance(doubt["right"], figures(each.signs)[1]) for each in group]

    def not_here(group: Sequence[Asked]) -> list[float]:
        return [each.signs.not_here for each in group]

    def of_sentence(group: Sequence[Asked]) -> list[float]:
        return [each.signs.chance for each in group]

    def share(values: Sequence[float], above: float) -> float:
        return sum(value >= above for value in values) / max(1, len(values))

    print(f"\n{name}: {len(answerable)} answerable, {len(right)} of them right")
    refused = doubt["none_above"]
    print(
        f"  wrongly refused {share(none(answerable), refused):.3f}, of the right ones {share(none(right), refused):.3f}"
    )
    for kind, group in kinds.items():
        if not group:
            continue
        alone, both = separation(not_here(group), not_here(answerable)), separation(none(group), none(answerable))
        print(f"  {kind} ({len(group)}): AUC of the reader alone {alone:.3f}, together {both:.3f};", end=" ")
        print(f"refused {share(none(group), refused):.3f}, called found {share(sure(group), doubt['sure_above']):.3f}")
        alone, both = separation(of_sentence(right), of_sentence(group)), separation(sure(right), sure(group))
        print(f"    right answers against these: AUC {alone:.3f} alone, {both:.3f} together")
    alone, both = separation(of_sentence(right), of_sentence(wrong)), separation(sure(right), sure(wrong))
    print(f"  right against wrong: AUC {alone:.3f} alone, {both:.3f} together; called found", end=" ")
    print(f"{share(sure(right), doubt['sure_above']):.3f} and {share(sure(wrong), doubt['sure_above']):.3f}")


if __name__ == "__main__":
    main()
