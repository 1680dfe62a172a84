"""Fits `ranker.json`: the weights of sentences' features, and when an answer is doubted.

    python -m research.fit_ranker --of held_out train 5 FILES HOME [--of fifth test 1 FILES HOME ...]
        [--model FOLDER] [--keep-weights] [--out FOLDER]

`--of`: a set of `benchmarks/questions` and its split; one document in how many (by its digest) is asked about, where a
reader was taught by the others; the folder with the files of the documents, told apart by their SHA-256; and that of a
library of all documents of the split, which is made or was kept.

- Weights: a conditional logit over the sentences of each answerable question, where a right sentence stands in the
  right document and holds an answer (of a list, in proportion). It starts at the weights of a ranker (`--prior`: that
  of another checkpoint with the same finder) and is drawn towards them (`SHRINK`), so that few questions cannot move it
  far. What was set by hand (`by_hand` in `fitted_on`) stays; with `--keep-weights` all do.
- Decision: two logistic regressions over `model.reading.ranker.AnswerFeatures`: that there is no answer, with as much
  weight for either kind of question, and that the best sentence is right alone.

Documents are drawn into two halves; each is fitted on one and judged on the other, beside the ranker before it. `--out`
writes the fit on all of them, for the checkpoint that was asked.

Axes: Q questions, S sentences, F features.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.rnn import pad_sequence

from app.assembly import open_library
from app.settings import load_settings
from model.reading.ranker import CONSTANT, FILE, AnswerFeatures, Decision, Ranker, Weights, reader_digest
from model.reading.span_reader import FOLDER
from retrieval.library import Library
from retrieval.query.features import FEATURES, Sentences
from retrieval.query.question import Question
from retrieval.query.rank import candidate_sentences, quotable_blocks, quote_best, score_sentences
from retrieval.query.retrieve import retrieve
from retrieval.query.sentences import Quotation
from retrieval.types.answers import DEFAULT_K

ROOT = Path(__file__).resolve().parents[1]
SETS = ROOT / "benchmarks" / "questions"
SHRINK = 0.1
"""Of the mean squared distance from the prior weights, in units of the spread of their features."""
RIDGE = 0.01
WRONGLY_REFUSED = 0.03
"""Of the questions fitted on that have an answer, by the threshold of `none_above`. About other documents it is two to
three times as many."""
SURE_ABOVE = 0.7
"""p_right from which an answer is called found, and quoted without all its surroundings."""
NAMES = tuple(FEATURES)
NONE_FEATURES = ("none", "block")
RIGHT_FEATURES = ("none", "reader_logprob", "lead", "unmatched", "term_overlap", "name_match")
Held = Callable[[Sequence[str]], float]


@dataclass(frozen=True, eq=False)
class Shown:
    """What one question was shown. `document`: the stored one that it is about; `held`: how much of its answer some
    texts hold; `quoted_text`: the text of a quotation; `text_of`: of each document that sentences come from."""

    document: str
    sentences: Sentences
    title_of: Mapping[str, str]
    held: Held
    quoted_text: Callable[[Quotation], str]
    answerable: bool
    text_of: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def table(self) -> tuple[Tensor, Tensor]:
        """features_SF of all features, and whether each sentence may be quoted (bool_S)."""
        scored = score_sentences(self.sentences, Ranker(NAMES, (1.0,) * len(NAMES), (1.0,) * len(NAMES)))
        return scored.features_SF, scored.scores_S.isfinite()

    @cached_property
    def right_S(self) -> Tensor:
        """How much of the answer each sentence of the right document holds."""
        items, documents = self.sentences.items, self.sentences.documents
        pairs = zip(items, documents, strict=True)
        return torch.tensor([self.held([each.text]) if of == self.document else 0.0 for each, of in pairs])

    def quoted(self, ranker: Ranker) -> tuple[AnswerFeatures, float]:
        """What is known of the quotation, and how much of the answer it holds."""
        best, *_ = quote_best(score_sentences(self.sentences, ranker), 1)
        return best.features, self.held([self.quoted_text(best)]) if self.answerable else 0.0


def ask(library: Library, row: dict[str, Any], document: str, held: Held) -> Shown | None:
    """None where nothing can be quoted."""
    workspace, index, passages = library.view.workspace, library.view.index, library.view.passages.for_one_question()
    reader = workspace.loaded().reader
    if reader is None:
        raise ValueError("This checkpoint has no reader, so there is nothing to weigh.")
    question = Question(text=row["question"], k=DEFAULT_K, anyway=True)
    with index.open_for_question(workspace.catalogue) as snapshot:
        retrieved = retrieve(workspace, index, snapshot, question)
        found, candidates = retrieved.search_result, retrieved.candidates
        quotable = quotable_blocks(workspace, passages, candidates)
        sentences = candidate_sentences(
            workspace,
            index,
            passages,
            found,
            candidates,
            quotable,
            lambda each: reader.read(question.text, each),
        )
    if not sentences.items:
        return None

    def quoted_text(quotation: Quotation) -> str:
        return "".join(text for text, _, _ in quotable.words(quotation, quotation.stop - quotation.start))

    text_of = {each: passages.text(each) for each in set(sentences.documents)}
    title_of = {each: passages.name(each) for each in text_of}
    return Shown(document, sentences, title_of, held, quoted_text, bool(row["answers"]), text_of)


def fit_weights(shown: Sequence[Shown], prior: Mapping[str, float], by_hand: Sequence[str] = ()) -> dict[str, float]:
    """Weights by which right sentences are the likeliest; those `by_hand` stay as they are."""
    useful = [each for each in shown if (each.right_S[each.table[1]] > 0).any()]
    prior_F = torch.tensor([prior.get(name, 0.0) for name in NAMES])
    if not useful:
        return dict(zip(NAMES, prior_F.tolist(), strict=True))
    scale_F = torch.cat([each.table[0] for each in useful]).std(0).clamp_min(1e-3)
    weights_F = (prior_F * scale_F).requires_grad_()
    features_QSF = pad_sequence([each.table[0] / scale_F for each in useful], batch_first=True)
    fit_QS = pad_sequence([each.table[1] for each in useful], batch_first=True)
    right_QS = pad_sequence([each.right_S for each in useful], batch_first=True).where(fit_QS, torch.zeros(()))
    fixed_F = torch.tensor([name in by_hand for name in NAMES])
    optimizer = torch.optim.LBFGS([weights_F], max_iter=150, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        logs_QS = (features_QSF @ weights_F).masked_fill(~fit_QS, -1e4).log_softmax(1)
        loss = -(logs_QS + right_QS.clamp_min(1e-9).log()).logsumexp(1).mean()
        loss = loss + SHRINK * (weights_F - prior_F * scale_F).square().mean()
        loss.backward()
        assert weights_F.grad is not None
        weights_F.grad[fixed_F] = 0.0
        return loss

    optimizer.step(closure)
    return dict(zip(NAMES, [round(value, 3) for value in (weights_F.detach() / scale_F).tolist()], strict=True))


def fit_decision(shown: Sequence[Shown], ranker: Ranker) -> Decision:
    """With thresholds by stated costs (`WRONGLY_REFUSED`, `SURE_ABOVE`)."""
    quoted = [each.quoted(replace(ranker, decision=Decision())) for each in shown]  # as sure ones are
    features, lacking = [one for one, _ in quoted], [not each.answerable for each in shown]
    none = _regression(features, lacking, NONE_FEATURES, even=True)
    right = _regression(features, [held > 0.5 for _, held in quoted], RIGHT_FEATURES, even=False)
    decision = Decision(none, right, 1.0, SURE_ABOVE, ranker.decision.answer_threshold, ranker.decision.sure_threshold)
    answerable = sorted(decision.p_none(one) for one, lacks in zip(features, lacking, strict=True) if not lacks)
    above = answerable[min(len(answerable) - 1, int((1 - WRONGLY_REFUSED) * len(answerable)))] if answerable else 1.0
    return Decision(none, right, round(above, 3), SURE_ABOVE, decision.answer_threshold, decision.sure_threshold)


def _regression(
    features: Sequence[AnswerFeatures], wanted: Sequence[bool], names: Sequence[str], *, even: bool
) -> Weights:
    """A logistic regression with a small ridge; `even`: both kinds weigh as much."""
    x_QF, y_Q = torch.tensor([[one.get(name, 0.0) for name in names] for one in features]), torch.tensor(wanted).float()
    mean_F, scale_F = x_QF.mean(0), x_QF.std(0).clamp_min(1e-3)
    weight_Q = torch.full_like(y_Q, 1 / len(y_Q))
    if even:
        weight_Q = torch.where(y_Q > 0, 0.5 / y_Q.sum().clamp_min(1), 0.5 / (1 - y_Q).sum().clamp_min(1))
    parameters = torch.zeros(len(names) + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([parameters], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        logits_Q = parameters[0] + ((x_QF - mean_F) / scale_F) @ parameters[1:]
        losses_Q = binary_cross_entropy_with_logits(logits_Q, y_Q, reduction="none")
        loss = (losses_Q * weight_Q).sum() + RIDGE * parameters[1:].square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    weights_F = parameters.detach()[1:] / scale_F
    constant = float(parameters.detach()[0] - (weights_F * mean_F).sum())
    named = zip(names, weights_F.tolist(), strict=True)
    return {CONSTANT: round(constant, 3)} | {name: round(weight, 3) for name, weight in named}


def judged(shown: Sequence[Shown], ranker: Ranker) -> dict[str, float]:
    """`answer`: how much of the answers is quoted and not refused. `wrongly`, `refused`: questions with and without an
    answer that are refused. `found`: of the answers called found, those that are right. `calibration`: expected
    calibration error of p_right, in tenths."""
    decision = ranker.decision
    rows = [(each.answerable, *each.quoted(ranker)) for each in shown]
    refused = [decision.p_none(features) >= decision.none_above for _, features, _ in rows]
    p_right = [decision.p_right(features) for _, features, _ in rows]
    marked = list(zip(rows, refused, p_right, strict=True))
    figures = {
        "answer": [held * (not no) for (answerable, _, held), no, _ in marked if answerable],
        "wrongly": [float(no) for (answerable, _, _), no, _ in marked if answerable],
        "refused": [float(no) for (answerable, _, _), no, _ in marked if not answerable],
        "found": [float(held > 0.5) for (_, _, held), no, p in marked if not no and p >= decision.sure_above],
    }
    error = calibration_error(p_right, [held > 0.5 for _, _, held in rows])
    means = {name: round(statistics.fmean(each), 3) if each else math.nan for name, each in figures.items()}
    return means | {"calibration": round(error, 3), "questions": len(rows)}


def calibration_error(stated: Sequence[float], right: Sequence[bool]) -> float:
    """Mean distance between what is stated and what comes true, over tenths of what is stated."""
    tenths: dict[int, list[tuple[float, bool]]] = {}
    for p, is_right in zip(stated, right, strict=True):
        tenths.setdefault(min(9, int(10 * p)), []).append((p, is_right))
    gaps = [abs(sum(p for p, _ in group) - sum(is_right for _, is_right in group)) for group in tenths.values()]
    return sum(gaps) / max(1, len(stated))


def fit(shown: Sequence[Shown], prior: Ranker, fitted_on: dict[str, Any], *, keep_weights: bool = False) -> Ranker:
    """`keep_weights`: those of the sentences' features stay as they are."""
    before = dict(zip(prior.features, prior.weights_without_reader, strict=True))
    after = dict(zip(prior.features, prior.weights_with_reader, strict=True))
    by_hand = list(prior.fitted_on.get("by_hand", ()))
    after = fit_weights(shown, after, NAMES if keep_weights else by_hand)
    fitted_on = fitted_on | ({"by_hand": by_hand} if by_hand else {})
    fitted = Ranker(
        NAMES, tuple(before.get(name, 0.0) for name in NAMES), tuple(after.values()), prior.decision, fitted_on
    )
    decision = fit_decision(shown, fitted)
    return Ranker(NAMES, fitted.weights_without_reader, fitted.weights_with_reader, decision, fitted_on)


def ask_all(
    questions: Path,
    documents: Path,
    home: Path,
    wanted: Callable[[int], bool],
    split: str = "train",
    model: Path = ROOT / "model" / "default",
) -> Iterator[tuple[dict[str, Any], Shown]]:
    """Questions of a split about documents of a wanted digest, asked of all its documents, with what was shown."""
    sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "quality"), str(questions)]
    held_by = importlib.import_module("held_out").held_by

    rows = [json.loads(line) for file in sorted(questions.glob("*.jsonl")) for line in file.open(encoding="utf-8")]
    rows = [row for row in rows if row["split"] == split]
    file_of = {hashlib.sha256(file.read_bytes()).hexdigest(): file for file in documents.iterdir() if file.is_file()}
    if missing := {row["document"] for row in rows} - file_of.keys():
        raise ValueError(f"{documents} lacks {len(missing)} of the documents that are asked about.")
    with open_library(load_settings(home=home, model=str(model))) as library:
        ids = {}
        for digest in sorted({row["document"] for row in rows}):
            job = library.jobs.run(library.documents.submit(file_of[digest]).id)
            ids[digest] = str(job.document_id)
        for row in rows:
            if wanted(int(row["document"], 16)) and (shown := ask(library, row, ids[row["document"]], held_by(row))):
                yield row, shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("SET", "SPLIT", "SHARE", "FILES", "HOME")
    parser.add_argument("--of", action="append", nargs=5, metavar=names, required=True, help="may come again")
    parser.add_argument("--model", type=Path, default=ROOT / "model" / "default", help="the checkpoint that is asked")
    parser.add_argument("--prior", type=Path, default=ROOT / "model" / "default", help="the checkpoint to start from")
    parser.add_argument("--keep-weights", action="store_true", help="fit only when an answer is doubted")
    parser.add_argument("--out", type=Path, help="folder to write ranker.json to")
    given = parser.parse_args()
    stored = json.loads((given.prior / FILE).read_text(encoding="utf-8"))
    prior = Ranker.load(given.prior, stored["finder"], reader_digest(given.prior / FOLDER))
    shown: list[Shown] = []
    for name, split, share, files, home in given.of:
        wanted = partial(_one_in, int(share))
        asked = ask_all(SETS / name, Path(files), Path(home), wanted, split, given.model)
        shown += [each for _, each in asked]
    told = [f"{name}, {split}, documents: one in {share}" for name, split, share, _, _ in given.of]
    ranker = report(shown, prior, {"questions": told}, keep_weights=given.keep_weights)
    if given.out:
        ranker.save(given.out, stored["finder"], reader_digest(given.model / FOLDER))


def _one_in(share: int, number: int) -> bool:
    return number % share == 0


def report(shown: Sequence[Shown], prior: Ranker, fitted_on: dict[str, Any], *, keep_weights: bool = False) -> Ranker:
    """The fit on all, after both halves of the documents have judged each other's."""
    documents = sorted({each.document for each in shown}, key=lambda name: hashlib.sha256(name.encode()).digest())
    halves = [[each for each in shown if (each.document in documents[::2]) is half] for half in (True, False)]
    for one, other in (halves, halves[::-1]):
        fitted = fit(one, prior, {}, keep_weights=keep_weights)
        print(json.dumps({"before": judged(other, prior), "fitted": judged(other, fitted)}))
    ranker = fit(shown, prior, fitted_on, keep_weights=keep_weights)
    weights = dict(zip(NAMES, ranker.weights_with_reader, strict=True))
    print(json.dumps({"after": weights, "decision": vars(ranker.decision)}))
    return ranker


if __name__ == "__main__":
    main()
