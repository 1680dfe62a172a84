"""Are the answers right? Exact match and F1 by question source, quoted and free, from the gold passage alone and from
everything at once.

    python benchmarks/answer_quality.py --data FOLDER [--model model/default] [--questions 200] [--full] [--out
    FILE.json]
    python benchmarks/answer_quality.py --passkey 4096,32768,131072 [--text FILE.jsonl.xz] [--model model/default]

Answers as `ask` gives them: search narrows the memory to 4 * 8 blocks, attention reads 8 of them in every memory layer
and head. `--full`
puts all development documents into one memory in RAM (a few GB). Scoring as in SQuAD: lower case, no punctuation, no
articles.
"""

import argparse
import json
import random
import re
import string
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from model.backbone import LandmarkModel, load_backbone
from model.generate import Sampling, generate, question_queries
from model.memory import KVBlock, RamMemory
from model.prefill import prefill, prefill_batch
from model.quote import QuoteSource
from model.reading import ReadPolicy
from model.training.corpus import read_jsonl, read_questions
from model.training.examples import document_frequency, encode_questions
from retrieval.prompts import word_starts

TOP_K = 8
CANDIDATES = 4 * TOP_K


class Store:
    """All blocks of some texts, their landmarks as one matrix."""

    def __init__(self, model: LandmarkModel, texts: Sequence[Sequence[int]]) -> None:
        self.model, per_block = model, model.config.tokens_per_block
        self.blocks: list[KVBlock] = []
        self.tokens: list[list[int]] = []
        self.following: list[int | None] = []
        rows: dict[int, list[KVBlock]] = defaultdict(list)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), 12):
            batch = order[start : start + 12]
            for row, block in prefill_batch(model, [list(texts[number]) for number in batch], kv_dtype=torch.bfloat16):
                rows[batch[row]].append(KVBlock(block.keys_YGLD.clone(), block.values_YGLD.clone(), block.num_tokens))
        for number, text in enumerate(texts):
            count = len(rows[number])
            self.following += [len(self.blocks) + at + 1 if at + 1 < count else None for at in range(count)]
            self.blocks += rows[number]
            self.tokens += [[int(t) for t in text[at * per_block : (at + 1) * per_block]] for at in range(count)]
        landmarks = torch.stack([block.keys_YGLD[:, :, -1] for block in self.blocks], 2).float()
        self.landmarks_YHND = landmarks.repeat_interleave(model.num_heads // model.num_kv_heads, 1)

    def search(self, question: str) -> tuple[list[int], float]:
        """Candidates in memory order, and the confidence of search."""
        prompt = self.model.prompt(question)
        weights_YH = torch.tensor(
            self.model.config.search_weights or [[1.0] * self.model.num_heads] * len(self.model.memory_layers)
        )
        query_YHD = question_queries(self.model, prompt.ids)[:, :, prompt.question].mean(2) * weights_YH[..., None]
        best = torch.einsum("yhd,yhnd->n", query_YHD, self.landmarks_YHND).topk(min(CANDIDATES, len(self.blocks)))
        return sorted(best.indices.tolist()), float(torch.sigmoid(best.values[0] / weights_YH.sum()))

    def answer(self, question: str, *, quote: bool) -> tuple[str, float]:
        """The answer's text and the confidence of search."""
        chosen, confidence = self.search(question)
        number = {block: at for at, block in enumerate(chosen)}
        memory = RamMemory.from_blocks(
            self.model.memory_layers, [self.blocks[n] for n in chosen], dtype=self.model.dtype
        )
        source = None
        if quote:
            following = [number.get(after) if (after := self.following[n]) is not None else None for n in chosen]
            source = QuoteSource([self.tokens[n] for n in chosen], following, word_starts(self.model))
        sampling = Sampling(max_tokens=32, stop=self.model.config.stop)
        steps = generate(
            self.model,
            self.model.prompt(question).ids,
            memory=memory,
            reading=ReadPolicy(top_k=TOP_K),
            sampling=sampling,
            quote_from=source,
        )
        return "".join(step.text for step in steps).strip(), confidence


def normalised(text: str) -> list[str]:
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def exact_and_f1(said: str, answers: Sequence[str]) -> tuple[float, float]:
    """Best over the acceptable answers; no answer is right where there is none."""
    best = (0.0, 0.0)
    for answer in answers or ("",):
        a, b = normalised(said), normalised(answer)
        common = sum((Counter(a) & Counter(b)).values())
        f1 = float(a == b) if not a or not b else (2 * common / (len(a) + len(b)))
        best = max(best, (float(a == b), f1), key=lambda pair: pair[1])
    return best


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, help="folder with qa/ and text/")
    options.add_argument("--model", default="model/default")
    options.add_argument("--questions", type=int, default=200)
    options.add_argument("--full", action="store_true")
    options.add_argument("--passkey", help="lengths in tokens, separated by commas")
    options.add_argument("--trials", type=int, default=50)
    options.add_argument("--out", type=Path)
    arguments = options.parse_args()
    model = load_backbone(arguments.model, device="cpu", dtype=torch.float32)
    if arguments.passkey:
        figures: dict = passkey(model, arguments.data, [int(n) for n in arguments.passkey.split(",")], arguments.trials)
    else:
        figures = answers(model, arguments.data, arguments.questions, full=arguments.full)
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=1))


def answers(model: LandmarkModel, folder: Path, count: int, *, full: bool) -> dict:
    sets = read_questions(folder, "dev")
    idf = document_frequency(
        [model.tokenize(text).ids for text in sets.texts[::4]], len(model.tokenizer), model.config.tokens_per_block
    )
    data = encode_questions(model.tokenizer, sets, idf, longest_question=100)
    chosen = random.Random(1).sample(data.questions, min(count, len(data.questions)))
    everything = Store(model, data.ids) if full else None
    scores: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    confidence: list[tuple[float, bool]] = []
    for question in chosen:
        text = model.decode(question.ids)
        passage = Store(model, [data.ids[question.document][slice(*question.passage)].tolist()])
        for name, store in (("gold passage", passage), ("everything", everything)):
            if store is None:
                continue
            for mode in ("quote", "free"):
                said, sure = store.answer(text, quote=mode == "quote")
                result = exact_and_f1(said, question.texts)
                for group in (
                    "all",
                    question.source if question.answerable else "unanswerable",
                    *(["answerable"] if question.answerable else []),
                ):
                    scores[f"{name}, {mode}"][group].append(result)
            if name == "everything" or not full:
                confidence.append((sure, question.answerable))
    return show(scores) | threshold(confidence)


def show(scores: dict[str, dict[str, list[tuple[float, float]]]]) -> dict:
    figures: dict = {}
    for name, groups in scores.items():
        print(f"{name}:  exact  F1  (questions)")
        figures[name] = {}
        for group, pairs in sorted(groups.items()):
            exact, f1 = np.mean(pairs, axis=0)
            figures[name][group] = {"exact": round(float(exact), 4), "f1": round(float(f1), 4), "questions": len(pairs)}
            print(f"  {group:24} {exact:.3f} {f1:.3f} ({len(pairs)})")
    return figures


def threshold(confidence: list[tuple[float, bool]]) -> dict:
    """The confidence that best tells answerable questions from others, by balanced accuracy."""
    values, answerable = np.array([c for c, _ in confidence]), np.array([a for _, a in confidence])
    if answerable.all() or not answerable.any():
        return {}
    accuracy = [(np.mean(values[answerable] >= t) + np.mean(values[~answerable] < t)) / 2 for t in values]
    best = int(np.argmax(accuracy))
    print(f"best threshold {values[best]:.4f}: balanced accuracy {accuracy[best]:.3f}")
    return {"threshold": float(values[best]), "balanced_accuracy": float(accuracy[best])}


def passkey(model: LandmarkModel, folder: Path, lengths: list[int], trials: int) -> dict:
    """A number hidden at a random place of held-out text of that many tokens; right if the answer holds it."""
    texts = [row["text"] for row in read_jsonl(folder / "text" / "heldout.jsonl.xz")]
    figures = {}
    for length in lengths:
        rng = random.Random(length)
        filler: list[int] = []
        rng.shuffle(texts)
        for text in texts:
            if len(filler) >= length:
                break
            filler += model.tokenize(text).ids
        per_block = model.config.tokens_per_block
        base = Store(model, [filler[:length]])
        right = {"found": 0, "quote": 0, "free": 0}
        for _ in range(trials):
            value = str(rng.randrange(10_000, 100_000))
            at = rng.randrange(2, len(base.blocks) - 3)
            # Only the window around the needle changes: it is read again, with the blocks before it as they stand.
            start = at - at % model.config.window_blocks
            needle = model.tokenize(f" The pass key is {value}. Remember it. {value} is the pass key.").ids
            place = at * per_block + rng.randrange(per_block)
            changed = (filler[start * per_block : place] + needle + filler[place:])[
                : model.config.window_blocks * per_block
            ]
            changed = changed[: (len(base.blocks) - start) * per_block]
            store = object.__new__(Store)
            store.__dict__.update(base.__dict__)
            new = list(
                prefill(
                    model,
                    changed,
                    recent=base.blocks[max(0, start - model.config.context_blocks) : start],
                    kv_dtype=torch.bfloat16,
                )
            )
            store.blocks, store.tokens, store.landmarks_YHND = (
                list(base.blocks),
                list(base.tokens),
                base.landmarks_YHND.clone(),
            )
            for offset, block in enumerate(new):
                store.blocks[start + offset] = block
                store.tokens[start + offset] = changed[offset * per_block : (offset + 1) * per_block]
                store.landmarks_YHND[:, :, start + offset] = block.keys_YGLD[:, :, -1].float()
            question = "What is the pass key?"
            chosen, _ = store.search(question)
            holds = {(place // per_block), (place + len(needle)) // per_block}
            right["found"] += bool(holds & set(chosen))
            for mode in ("quote", "free"):
                right[mode] += value in store.answer(question, quote=mode == "quote")[0].replace(" ", "")
        figures[str(length)] = {name: hits / trials for name, hits in right.items()}
        print(length, figures[str(length)], flush=True)
    return figures


if __name__ == "__main__":
    main()
