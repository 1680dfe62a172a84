"""Fits `ranker.json`: the weights of sentences' features, and when an answer is doubted.

    python -m research.fit_ranker --documents FOLDER --questions FILE.jsonl [--out FOLDER] [--home DIR]

The questions (format: benchmarks/questions/README.md) are asked of a library of all the documents that they name, and
once more without the document that answers, where there is no answer. What a question was shown is kept as a table of
features in `--home`, so that a second fit takes seconds.

- Weights: a conditional logit over the sentences of each answerable question, where a right sentence is one that holds
  an answer. It starts at the weights of the checkpoint's ranker and is drawn towards them (`SHRINK`), so that few
  questions cannot move it far.
- Decision: two logistic regressions (`model.reading.ranker.Decision`), each with as much weight for either kind.

Documents are drawn into two halves; each is fitted on one and judged on the other, beside the ranker that the
checkpoint has. `--out` writes the fit on all of them, for the checkpoint that was asked.

Axes: S sentences, F features.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from app.assembly import open_library
from app.settings import load_settings
from model.reading.ranker import FILE, Decision, Ranker, Signs, log_odds, log_probability, reader_digest
from model.reading.second_look import FOLDER
from retrieval.library import Library
from retrieval.query.features import FEATURES, table
from retrieval.query.question import Question
from retrieval.query.rank import candidate_sentences, quoting_from
from retrieval.query.retrieve import retrieve
from retrieval.types.answers import DEFAULT_K
from retrieval.types.records import Scope

SHRINK = 0.02
"""Of the squared distance from the prior weights, in units of the spread of their features, a question."""
WRONGLY_REFUSED = 0.03
"""Of answerable questions, by the threshold of `none_above`."""
SURE_ABOVE = 0.5
NAMES = tuple(FEATURES)


@dataclass(frozen=True, eq=False)
class Asked:
    """What one question was shown. `right_S`: whether a sentence holds an answer."""

    document: str
    features_SF: Tensor
    right_S: Tensor
    answerable: bool
    p_none: float
    block: float
    unmatched: float

    def best(self, ranker: Ranker) -> int:
        return int(ranker.scores(self.features_SF, "after").argmax())

    def signs(self, ranker: Ranker) -> Signs:
        row_F = dict(zip(NAMES, self.features_SF[self.best(ranker)].tolist(), strict=True))
        probability = float(torch.tensor(row_F["reader_logprob"]).exp())
        return Signs(self.p_none, probability, self.block, row_F["late_interaction"], self.unmatched)

    def is_right(self, ranker: Ranker) -> bool:
        return bool(self.right_S[self.best(ranker)])


def ask(library: Library, row: dict[str, Any], scope: Scope | None) -> Asked | None:
    """None where nothing can be quoted."""
    workspace, index, passages = library._workspace, library._index, library._passages
    reader = workspace.loaded().second_look
    if reader is None:
        raise ValueError("This checkpoint has no reader, so there is nothing to weigh.")
    question = Question(text=row["question"], k=DEFAULT_K, anyway=True, scope=scope)
    with workspace.scheduler.question_open(), index.open_snapshot(workspace.catalogue) as snapshot:
        retrieved = retrieve(workspace, index, snapshot, question)
        quoting = quoting_from(workspace, passages, retrieved.candidates)
        sentences, _, _ = candidate_sentences(
            workspace, index, passages, retrieved.found, retrieved.candidates, quoting,
            lambda each: reader.read(row["question"], each),
        )  # fmt: skip
    if not sentences.items or sentences.p_none is None:
        return None
    wanted = [_plain(answer) for answer in row["answers"]] if scope is None else []
    right = [any(f" {one} " in f" {_plain(each.text)} " for one in wanted) for each in sentences.items]
    return Asked(
        row["document"], table(sentences, NAMES), torch.tensor(right), bool(wanted), sentences.p_none,
        retrieved.found.confidence, retrieved.found.unmatched,
    )  # fmt: skip


def _plain(text: str) -> str:
    return re.sub(r"[^\w$%#]+", " ", text.lower()).strip()


def ask_all(rows: Sequence[dict[str, Any]], documents: Path, home: Path) -> list[Asked]:
    with open_library(load_settings(home=home)) as library:
        ids = {}
        for name in sorted({row["document"] for row in rows}):
            job = library.run_job(library.submit(documents / name).id)
            if job.state != "done":
                raise ValueError(f"{documents / name} cannot be read: {job.error}")
            ids[name] = job.document_id
        made = []
        for row in rows:
            others = Scope(document_ids=tuple(id_ for name, id_ in ids.items() if name != row["document"]))
            made += [ask(library, row, scope) for scope in (None, others)]
    return [each for each in made if each is not None]


def fit_weights(asked: Sequence[Asked], prior: Ranker) -> tuple[float, ...]:
    """`after`: weights by which right sentences are the likeliest."""
    useful = [each for each in asked if each.right_S.any() and not each.right_S.all()]
    spread_F = torch.cat([each.features_SF for each in useful]).std(0)
    scale_F = spread_F.where(spread_F > 1e-3, torch.ones(()))  # a feature without spread tells nothing
    prior_F = torch.tensor(prior.after) * scale_F
    weights_F = prior_F.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weights_F], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = SHRINK * (weights_F - prior_F).square().sum()
        for each in useful:
            scores_S = (each.features_SF / scale_F) @ weights_F
            right = scores_S.masked_fill(~each.right_S, -torch.inf).logsumexp(0)
            loss = loss + (scores_S.logsumexp(0) - right) / len(useful)
        loss.backward()
        return loss

    optimizer.step(closure)
    return tuple(round(value, 3) for value in (weights_F.detach() / scale_F).tolist())


def fit_decision(asked: Sequence[Asked], ranker: Ranker) -> Decision:
    """Wrong sentences of answerable questions, and those of questions without an answer, count as much."""
    signs = [each.signs(ranker) for each in asked]
    of_none = [[1.0, log_odds(one.p_none), one.block, one.unmatched] for one in signs]
    of_right = [[1.0, log_odds(one.p_none), log_probability(one.p_sentence), one.sentence] for one in signs]
    none = _regression(of_none, [not each.answerable for each in asked])
    right = _regression(of_right, [each.is_right(ranker) for each in asked])
    decision = Decision(none, right, 1.0, SURE_ABOVE, ranker.decision.answer_threshold, ranker.decision.sure_threshold)
    answerable = sorted(decision.p_none(one) for one, each in zip(signs, asked, strict=True) if each.answerable)
    above = answerable[min(len(answerable) - 1, int((1 - WRONGLY_REFUSED) * len(answerable)))]
    return Decision(none, right, round(above, 3), SURE_ABOVE, decision.answer_threshold, decision.sure_threshold)


def _regression(rows: Sequence[Sequence[float]], wanted: Sequence[bool]) -> tuple[float, float, float, float]:
    x_QF, y_Q = torch.tensor(rows), torch.tensor(wanted).float()
    weight_Q = torch.where(y_Q > 0, 0.5 / y_Q.sum().clamp_min(1), 0.5 / (1 - y_Q).sum().clamp_min(1))
    scale_F = x_QF.std(0).clamp_min(1e-6)
    scale_F[0] = 1.0
    weights_F = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights_F], max_iter=300)

    def closure() -> Tensor:
        optimizer.zero_grad()
        losses_Q = binary_cross_entropy_with_logits((x_QF / scale_F) @ weights_F, y_Q, reduction="none")
        loss = (losses_Q * weight_Q).sum() + 0.01 * weights_F[1:].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    one, two, three, four = (round(weight, 3) for weight in (weights_F.detach() / scale_F).tolist())
    return one, two, three, four


def judged(asked: Sequence[Asked], ranker: Ranker) -> dict[str, float]:
    """`right`: answerable questions whose best sentence holds an answer. `refused`, `wrongly`: questions without and
    with an answer that are refused. `found`: of the answers called found, those that are right."""
    answerable, others = ([each for each in asked if each.answerable is value] for value in (True, False))

    def refuses(each: Asked) -> bool:
        return ranker.decision.p_none(each.signs(ranker)) >= ranker.decision.none_above

    def sure(each: Asked) -> bool:
        return not refuses(each) and ranker.decision.p_right(each.signs(ranker)) >= ranker.decision.sure_above

    found = [each.is_right(ranker) for each in asked if sure(each)]
    figures = {
        "right": [each.is_right(ranker) for each in answerable],
        "wrongly": [refuses(each) for each in answerable],
        "refused": [refuses(each) for each in others],
        "found": found,
    }
    return {name: round(sum(each) / max(1, len(each)), 3) for name, each in figures.items()} | {"questions": len(asked)}


def of_all_features(ranker: Ranker) -> Ranker:
    """The same ranker, which weighs features that it does not name with 0."""

    def weights(given: Sequence[float]) -> tuple[float, ...]:
        of_name = dict(zip(ranker.features, given, strict=True))
        return tuple(of_name.get(name, 0.0) for name in NAMES)

    return Ranker(NAMES, weights(ranker.before), weights(ranker.after), ranker.decision, ranker.fitted_on)


def fit(asked: Sequence[Asked], prior: Ranker, fitted_on: dict[str, Any]) -> Ranker:
    weighed = Ranker(NAMES, prior.before, fit_weights(asked, prior), prior.decision, fitted_on)
    return Ranker(NAMES, prior.before, weighed.after, fit_decision(asked, weighed), fitted_on)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--home", type=Path, required=True, help="keep the library and the features there")
    parser.add_argument("--model", type=Path, default=Path(__file__).resolve().parents[1] / "model" / "default")
    parser.add_argument("--out", type=Path, help="folder to write ranker.json to")
    parser.add_argument("--every", type=int, default=1, help="ask only every so many questions")
    given = parser.parse_args()
    content = given.questions.read_bytes()
    rows = [json.loads(line) for line in content.decode().splitlines()][:: given.every]
    kept = given.home / "features.json"
    stored = json.loads((given.model / FILE).read_text(encoding="utf-8"))
    prior = of_all_features(Ranker.load(given.model, stored["finder"], reader_digest(given.model / FOLDER)))
    asked = _kept(kept) if kept.exists() else ask_all(rows, given.documents, given.home)
    if not kept.exists():
        kept.write_text(json.dumps([_plain_of(each) for each in asked]), encoding="utf-8")
    documents = sorted({each.document for each in asked}, key=lambda name: hashlib.sha256(name.encode()).digest())
    halves = [[each for each in asked if (each.document in documents[::2]) is half] for half in (True, False)]
    for one, other in (halves, halves[::-1]):
        print(json.dumps({"before": judged(other, prior), "fitted": judged(other, fit(one, prior, {}))}))
    ranker = fit(asked, prior, {"questions": given.questions.name, "sha256": hashlib.sha256(content).hexdigest()})
    print(json.dumps({"after": dict(zip(NAMES, ranker.after, strict=True)), "decision": vars(ranker.decision)}))
    if given.out:
        ranker.save(given.out, stored["finder"], stored["reader"])


def _plain_of(each: Asked) -> dict[str, Any]:
    return vars(each) | {"features_SF": each.features_SF.tolist(), "right_S": each.right_S.tolist()}


def _kept(file: Path) -> list[Asked]:
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [Asked(**row | {name: torch.tensor(row[name]) for name in ("features_SF", "right_S")}) for row in rows]


if __name__ == "__main__":
    main()
