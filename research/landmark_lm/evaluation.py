"""The goals, measured through the product's own reading, searching and generating.

- Passkeys in the model's own words, by length of the stored text.
- Questions over many stored passages: F1 over all of them and with the gold passage as the only memory; with memory
  zeroed and with the blocks that attention wants least; how often the landmarks' vote names the gold block, and BM25.
- Perplexity of long text with its earlier windows stored, against the window alone.
- Time to the first token over a stored text, against reading it.
"""

import math
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from model.attention.memory import InMemoryReader, MemoryReader
from model.attention.selection import SelectionPolicy, Voters
from model.checkpoint.landmark_model import LandmarkModel
from model.inference.generate import Sampling, generate
from research.landmark_lm.loss import word_logits
from research.landmark_lm.memories import Library, PartOfMemory, landmark_votes, read_passages
from research.landmark_lm.sources import Context, Tokens, read_contexts
from research.train.data.corpus import read_jsonl
from research.train.evaluation.answer_scores import exact_and_f1
from research.train.evaluation.passkey import first_integer

Figures = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much is measured."""

    passkeys: int = 20
    passkey_tokens: tuple[int, ...] = (4096, 32768)
    questions: int = 100
    blocks: int = 1000
    texts: int = 20
    top_k: int = 4
    voters: Voters = "group"


def answer(
    model: LandmarkModel, question: str, memory: MemoryReader | None, policy: SelectionPolicy, *, max_tokens: int = 24
) -> str:
    """What the model says, greedily."""
    prompt = model.prompt(question).ids
    tokens = generate(model, prompt, memory=memory, policy=policy, sampling=Sampling(max_tokens=max_tokens))
    return "".join(token.text for token in tokens).strip()


def passkey_figures(
    tokens: Tokens, filler: Sequence[int], amounts: Amounts, policy: SelectionPolicy
) -> Iterator[Figures]:
    """One line for each length. Windows are read alone, so that filler is read once: each prompt is the stored filler
    with one window replaced, which is what reading its whole text gives."""
    model, room = tokens.model, tokens.room
    for length in amounts.passkey_tokens:
        count = length // room
        windows = [list(filler[at * room : (at + 1) * room]) for at in range(count)]
        windows = [window for window in windows if len(window) == room]
        rng, right, without = random.Random(f"passkey {length}"), 0, 0
        keys = [rng.randint(1, 50_000) for _ in range(amounts.passkeys)]
        hidden = []
        for key in keys:
            said = model.tokenize(f" The pass key is {key}. Remember it. {key} is the pass key. ").ids
            at = rng.randrange(room - len(said))
            hidden.append([*windows[0][:at], *said, *windows[0][at:]][:room])
        library = read_passages(model, [*windows, *hidden])
        fixed = [block for window in range(1, len(windows)) for block in library.blocks_of(window)]
        for number, key in enumerate(keys):
            blocks = [*fixed, *library.blocks_of(len(windows) + number)]
            memory = _some(library, blocks)
            right += first_integer(answer(model, "What is the pass key?", memory, policy)) == key
            without += first_integer(answer(model, "What is the pass key?", None, policy)) == key
        yield {
            "tokens": len(windows) * room,
            "prompts": len(keys),
            "right": right / len(keys),
            "right_without_memory": without / len(keys),
        }


def _some(library: Library, blocks: Sequence[int]) -> MemoryReader:
    """A memory of these blocks alone, searched by their landmarks."""
    memory, at = InMemoryReader(library.memory.layers), torch.tensor(list(blocks))
    layers, lengths = {}, None
    for layer in library.memory.layers:
        groups = library.memory.landmarks(layer).shape[1]
        keys, values, lengths = library.memory.read(layer, at.expand(1, groups, 1, -1))
        layers[layer] = keys[:, :, 0], values[:, :, 0]
    assert lengths is not None
    memory.append(layers, lengths[:, 0, 0])
    return memory


def question_figures(tokens: Tokens, contexts: Sequence[Context], amounts: Amounts, policy: SelectionPolicy) -> Figures:
    """Questions over `amounts.blocks` stored blocks of passages; one question a passage."""
    model, rng = tokens.model, random.Random("questions")
    passages, asked, blocks = [], [], 0
    for context in rng.sample(list(contexts), len(contexts)):
        ids, found = tokens.passage(context, rng, wanted=1)
        if blocks >= amounts.blocks:
            break
        blocks += -(-len(ids) // model.config.tokens_per_block)
        passages.append(ids)
        asked += [(len(passages) - 1, *one) for one in found]
    library = read_passages(model, passages)
    asked = rng.sample(asked, min(amounts.questions, len(asked)))
    marks: dict[str, list[tuple[float, float]]] = {}
    raw = model.config.tokens_per_block
    right = [_gold(model, library, passage, first, last) for passage, _, _, first, last in asked]
    texts = [model.decode(ids[at : at + raw]) for ids in passages for at in range(0, len(ids), raw)]
    ranks, lexical = list[int](), bm25_ranks(texts, [question for _, question, *_ in asked], right)
    for (passage, question, gold, _, _), blocks_of_answer in zip(asked, right, strict=True):
        votes_N = landmark_votes(model, library.memory, model.prompt(question).ids, policy)
        ranks.append(min(int((votes_N > votes_N[block]).sum()) for block in blocks_of_answer))
        ways: dict[str, MemoryReader] = {
            "memory": library.memory,
            "gold_passage": PartOfMemory(library.memory, blocks=library.blocks_of(passage)),
            "zeroed": PartOfMemory(library.memory, zeroed=True),
            "worst": PartOfMemory(library.memory, worst=True),
        }
        for name, memory in ways.items():
            few = SelectionPolicy(top_k=tokens.shape.blocks, voters=policy.voters) if name == "gold_passage" else policy
            marks.setdefault(name, []).append(exact_and_f1(answer(model, question, memory, few), [gold]))
    figures: Figures = {"blocks": library.memory.num_blocks, "questions": len(asked)}
    for name, pairs in marks.items():
        figures[f"f1_{name}"] = statistics.fmean(f1 for _, f1 in pairs)
        figures[f"exact_{name}"] = statistics.fmean(exact for exact, _ in pairs)
    for name, places in (("landmarks", ranks), ("bm25", lexical)):
        figures[f"{name}_first"] = statistics.fmean(place < 1 for place in places)
        figures[f"{name}_among_8"] = statistics.fmean(place < 8 for place in places)
    return figures


def _gold(model: LandmarkModel, library: Library, passage: int, first: int, last: int) -> range:
    start, raw = library.first_block[passage], model.config.tokens_per_block
    return range(start + first // raw, start + (last - 1) // raw + 1)


def bm25_ranks(texts: Sequence[str], questions: Sequence[str], gold: Sequence[Sequence[int]]) -> list[int]:
    """For each question how many texts score higher than the best of its right ones."""
    # It imports JAX where that is installed, which would take three quarters of a GPU's memory for itself.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import bm25s

    index, ranks = bm25s.BM25(), []
    index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
    for question, right in zip(questions, gold, strict=True):
        (words,) = bm25s.tokenize([question], stopwords="en", return_ids=False, show_progress=False)
        scores = index.get_scores(words)
        ranks.append(min(int((scores > scores[text]).sum()) for text in right))
    return ranks


@torch.no_grad()
def text_figures(tokens: Tokens, texts: Sequence[str], amounts: Amounts, policy: SelectionPolicy) -> Figures:
    """Mean loss a token of 128 tokens behind 2,000 stored ones, with and without them, and the difference in standard
    errors."""
    model, length, stored = tokens.model, 128, 2000
    differences, alone = [], []
    for text in texts[: amounts.texts]:
        ids = model.tokenize(text[: 8 * (stored + length)]).ids
        if len(ids) < stored + length:
            continue
        memory = read_passages(model, [ids[at : at + tokens.room] for at in range(0, stored, tokens.room)]).memory
        rest = ids[stored : stored + length]
        losses = [_loss(model, rest, reader, policy) for reader in (memory, None)]
        differences.append(losses[0] - losses[1])
        alone.append(losses[1])
    if len(differences) < 2:
        raise ValueError("perplexity needs at least two texts of 2,200 tokens; give other files.")
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
    return {
        "texts": len(differences),
        "perplexity_window": math.exp(statistics.fmean(alone)),
        "perplexity_memory": math.exp(statistics.fmean(alone) + mean),
        "difference_in_errors": mean / error,
    }


def _loss(model: LandmarkModel, raw: Sequence[int], memory: MemoryReader | None, policy: SelectionPolicy) -> float:
    ids = model.with_landmarks(raw[:-1])
    context = model.context(reader=memory, policy=policy) if memory else model.context()
    hidden_TE = model.encode(torch.tensor([ids], device=model.device), context)[0]
    kept = [row for row, token in enumerate(ids) if token != model.config.landmark_token_id]
    logits = word_logits(model, hidden_TE[kept])
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(raw[1:], device=model.device)))


def time_figures(tokens: Tokens, filler: Sequence[int], length: int, policy: SelectionPolicy) -> Figures:
    """Seconds to the first token over `length` stored tokens, and to read them."""
    model, prompt = tokens.model, tokens.model.prompt("What is the pass key?").ids
    begun = time.perf_counter()
    memory = read_passages(model, [filler[at : at + tokens.room] for at in range(0, length, tokens.room)]).memory
    reading, firsts = time.perf_counter() - begun, []
    for _ in range(5):
        begun = time.perf_counter()
        next(generate(model, prompt, memory=memory, policy=policy))
        firsts.append(time.perf_counter() - begun)
    first = statistics.median(firsts)
    return {"tokens": length, "reading_s": reading, "first_token_s": first, "times_faster": reading / first}


def evaluate(tokens: Tokens, data: Path, amounts: Amounts) -> Iterator[tuple[str, Figures]]:
    """All figures by name, each as soon as it is known. `data`: a folder with qa/squad11.dev.jsonl.xz and
    text/heldout.jsonl.xz."""
    policy = SelectionPolicy(top_k=amounts.top_k, voters=amounts.voters)
    contexts = [context for group in read_contexts(data / "qa" / "squad11.dev.jsonl.xz") for context in group]
    texts = [line["text"] for line in read_jsonl(data / "text" / "heldout.jsonl.xz") if len(line["text"]) > 10_000]
    random.Random("texts").shuffle(texts)
    longest = max(amounts.passkey_tokens)
    filler = tokens.model.tokenize("\n".join(texts)[: 8 * longest]).ids
    yield "questions", question_figures(tokens, contexts, amounts, policy)
    for line in passkey_figures(tokens, filler, amounts, policy):
        yield f"passkey_{line['tokens']:.0f}", line
    yield "text", text_figures(tokens, texts, amounts, policy)
    yield "time", time_figures(tokens, filler, longest, policy)
