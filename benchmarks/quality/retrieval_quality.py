"""Does `search` find the block that answers? Landmarks alone, landmarks and then tokens, BM25 and a sentence encoder
over the very same blocks, in one run.

    python benchmarks/quality/retrieval_quality.py --data FOLDER [--model model/default] [--model ENCODER]
    [--minilm FOLDER] [--questions 2000] [--documents 1000] [--out FILE.json]

Several finders are measured one after the other, each on blocks of its own tokens.

The memory holds all development documents at once (contexts of one title joined), on the model's block grid. Gold: the
blocks that overlap an answer span; where a source has no spans, the stretch of the passage that shares most with
question and answer (such sources are marked). "landmarks, then tokens, titles" is what search does where the
checkpoint says `ranks_by_tokens`; all ways are measured for any checkpoint. "titles": the title of the document takes
part, for BM25 and the sentence encoder as the first words of every block. "exact terms": blocks gain that hold the rare
words of the question, as in search.

Axes: Y memory layers, W weighed memory layers, H query heads, G KV heads, Q question tokens, N blocks, L tokens in a
block, D head dim, C proposed blocks, X documents, T tokens of a title.
"""

import argparse
import copy
import json
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import bm25s
import machine
import numpy as np
import torch
from torch.nn.functional import pad

from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_backbone
from model.inference.prompt import encode_prompt
from model.scoring.late_interaction import best_matches, block_scores, token_matches
from research.prefill_batch import prefill_batch
from research.train.data.corpus import read_questions
from research.train.data.examples import TokenDocuments, TokenQuestion, document_frequency, encode_questions
from retrieval.index.inverted_index import Postings, most_rare
from retrieval.index.terms import asked_terms, crossing_terms, terms_of
from retrieval.index.title_keys import title_keys
from retrieval.query.question import mean_query
from retrieval.query.search import FEWEST_PROPOSED, term_weight

DEPTH = 20
DEPTHS = (1, 8, DEPTH, 128, FEWEST_PROPOSED)
ROWS = 12
OURS = "landmarks, then tokens, titles"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, required=True, help="folder with qa/")
    options.add_argument("--model", action="append", help="a finder, landmark model or encoder; may be repeated")
    options.add_argument(
        "--minilm", type=Path, help="folder of all-MiniLM-L6-v2; left out of the comparison if not given"
    )
    options.add_argument("--questions", type=int, default=0, help="a random sample of so many (0: all)")
    options.add_argument("--documents", type=int, default=0, help="a random sample of so many (0: all)")
    options.add_argument("--out", type=Path, help="write the figures here as JSON")
    arguments = options.parse_args()
    print(machine.described(torch.get_num_threads()))
    figures = {name: measured(arguments, name) for name in arguments.model or ["model/default"]}
    if arguments.out:
        arguments.out.write_text(json.dumps(figures, indent=1))


def measured(arguments: argparse.Namespace, name: str) -> dict[str, dict[str, dict[str, float]]]:
    print(f"\nfinder: {name}")
    model = load_backbone(name, device="cpu", dtype=torch.float32)
    data, spans = development(model, arguments.data)
    questions = drawn(data, arguments.documents or len(data.ids), arguments.questions or len(data.questions))
    blocks = Blocks(model, data)
    gold = [blocks.gold(question) for question in questions]
    print(
        f"{len(data.ids)} documents, {len(blocks.ids)} blocks of {model.config.block_size}, {len(questions)} questions",
        flush=True,
    )
    plain, titled = texts_of(model, data, blocks, titles=False), texts_of(model, data, blocks, titles=True)
    found = {"bm25": bm25_ranking(model, plain, questions), "bm25, titles": bm25_ranking(model, titled, questions)}
    report(found, questions, gold, spans)
    started = time.perf_counter()
    stored = stored_keys(model, data, blocks)
    print(f"prefill: {sum(map(len, data.ids)) / (time.perf_counter() - started):.0f} tokens/s", flush=True)
    found |= search_rankings(model, stored, questions, plain)
    figures = report(found, questions, gold, spans)
    if arguments.minilm:
        found["minilm"] = minilm_ranking(arguments.minilm, model, plain, questions)
        found["minilm, titles"] = minilm_ranking(arguments.minilm, model, titled, questions)
        figures = report(found, questions, gold, spans)
    return figures


def development(model: LandmarkModel, folder: Path) -> tuple[TokenDocuments, set[str]]:
    """The development sets as tokens, and the sources whose gold is given by answer spans."""
    sets = read_questions(folder, "dev")
    ids = [model.tokenize(text).ids for text in sets.texts]
    idf = document_frequency(ids, len(model.tokenizer), model.config.tokens_per_block)
    spans = {question.source for question in sets.questions if question.spans}
    tokenizer = model.tokenizer
    if tokenizer.eos_token_id is None:  # an encoder's separator ends a text
        tokenizer = copy.deepcopy(tokenizer)
        tokenizer.eos_token = tokenizer.sep_token
    return encode_questions(tokenizer, sets, idf, longest_question=200), spans


def drawn(data: TokenDocuments, documents: int, questions: int) -> list[TokenQuestion]:
    """Answerable questions about a random sample of the documents; the texts of all others are emptied."""
    kept = set(random.Random(0).sample(range(len(data.ids)), min(documents, len(data.ids))))
    data.ids = [ids if number in kept else ids[:0] for number, ids in enumerate(data.ids)]
    asked = [question for question in data.questions if question.document in kept and question.answerable]
    return random.Random(0).sample(asked, min(questions, len(asked)))


class Blocks:
    """All blocks of all documents, numbered through."""

    def __init__(self, model: LandmarkModel, data: TokenDocuments) -> None:
        self.size = model.config.tokens_per_block
        self.first = np.cumsum([0, *(-(-len(ids) // self.size) for ids in data.ids)])
        self.ids = [ids[start : start + self.size] for ids in data.ids for start in range(0, len(ids), self.size)]

    def gold(self, question: TokenQuestion) -> set[int]:
        first = int(self.first[question.document])
        return set(range(first + question.start // self.size, first + (question.stop - 1) // self.size + 1))


@dataclass(frozen=True, eq=False)
class StoredKeys:
    """What search reads of every block."""

    landmarks_YGND: torch.Tensor
    keys_WNGLD: list[torch.Tensor]
    """bfloat16, as stored."""
    lengths_N: torch.Tensor
    place_N: torch.Tensor
    """See `late_interaction.block_scores`."""
    document_N: torch.Tensor
    titles_WXGTD: list[torch.Tensor]
    """Keys of the titles' tokens by document, see `title_keys`."""
    title_lengths_X: torch.Tensor


def stored_keys(model: LandmarkModel, data: TokenDocuments, blocks: Blocks) -> StoredKeys:
    """Read all documents; documents of like length side by side."""
    weighed = [model.memory_layers.index(layer) for layer in model.searched_layers]
    size = (len(blocks.ids), model.num_kv_heads, model.config.block_size, model.head_dim)
    keys_WNGLD = [torch.empty(size, dtype=torch.bfloat16) for _ in weighed]
    landmarks_YGND = torch.empty(len(model.memory_layers), model.num_kv_heads, len(blocks.ids), model.head_dim)
    order = sorted(
        (number for number in range(len(data.ids)) if len(data.ids[number])), key=lambda number: len(data.ids[number])
    )
    for start in range(0, len(order), ROWS):
        documents = order[start : start + ROWS]
        seen: dict[int, int] = defaultdict(int)
        for row, block in prefill_batch(model, [data.ids[number].tolist() for number in documents]):
            number = int(blocks.first[documents[row]]) + seen[row]
            seen[row] += 1
            landmarks_YGND[:, :, number] = block.keys_YGLD[:, :, -1]
            for keys_NGLD, y in zip(keys_WNGLD, weighed, strict=True):
                keys_NGLD[number] = block.keys_YGLD[y]
    lengths_N = torch.tensor([len(ids) for ids in blocks.ids])
    document_N = torch.from_numpy(np.repeat(np.arange(len(data.ids)), np.diff(blocks.first)))
    none = torch.zeros(0, len(weighed), model.num_kv_heads, model.head_dim)
    titles = [title_keys(model, title).float() if title else none for title in data.titles]
    titles = [keys_TWGD.permute(1, 2, 0, 3) for keys_TWGD in titles]
    title_lengths_X = torch.tensor([keys_WGTD.shape[2] for keys_WGTD in titles])
    longest = int(title_lengths_X.max())
    same = torch.stack([pad(keys_WGTD, (0, 0, 0, longest - keys_WGTD.shape[2])) for keys_WGTD in titles], 1)
    place_N = torch.arange(len(blocks.ids)) + document_N
    return StoredKeys(landmarks_YGND, keys_WNGLD, lengths_N, place_N, document_N, list(same), title_lengths_X)


def search_rankings(
    model: LandmarkModel, stored: StoredKeys, questions: list[TokenQuestion], texts: list[str]
) -> dict[str, list[list[int]]]:
    """By landmarks, by tokens among the blocks that landmarks propose, and by the landmarks of each weighed layer
    alone, if there are several."""
    weighed = model.searched_layers
    holders: dict[str, list[int]] = defaultdict(list)
    terms_N = terms_of_blocks(stored, texts)
    for number, terms in enumerate(terms_N):
        for term in terms:
            holders[term].append(number)
    found: dict[str, list[list[int]]] = defaultdict(list)
    seconds = [0.0, 0.0]
    for question in questions:
        prompt = model.prompt_of(question.ids)
        queries_YHQD = encode_prompt(model, prompt.ids).queries_YHQD[:, :, prompt.question]
        began = time.perf_counter()
        scores_YN = torch.einsum("ygd,ygnd->yn", mean_query(model, queries_YHQD), stored.landmarks_YGND)
        by_landmarks_C = scores_YN.sum(0).topk(min(FEWEST_PROPOSED, scores_YN.shape[1])).indices
        asked = model.decode(question.ids)
        by_words = most_rare([holders[term] for term in asked_terms(asked)], len(texts))
        proposed_C = torch.tensor([*by_landmarks_C.tolist(), *sorted({*by_words} - {*by_landmarks_C.tolist()})])
        is_by_words_C = torch.arange(len(proposed_C)) >= len(by_landmarks_C)
        proposed = time.perf_counter()
        keys_WCGLD = [keys_NGLD[proposed_C] for keys_NGLD in stored.keys_WNGLD]
        queries_QWGD = model.token_queries(queries_YHQD)
        best_QC = best_matches(token_matches(queries_QWGD, keys_WCGLD, stored.lengths_N[proposed_C]))
        of_X, at_C = stored.document_N[proposed_C].unique(return_inverse=True)
        titles_WXGTD = [titles_XGTD[of_X] for titles_XGTD in stored.titles_WXGTD]
        titles_QX = best_matches(token_matches(queries_QWGD, titles_WXGTD, stored.title_lengths_X[of_X]))
        with_titles_QC = best_QC.maximum(titles_QX[:, at_C])
        for name, each_QC in (("landmarks, then tokens", best_QC), (OURS, with_titles_QC)):
            all_C = block_scores(each_QC, stored.place_N[proposed_C])
            scores_C = all_C.masked_fill(is_by_words_C, -torch.inf)
            found[name].append(proposed_C[scores_C.argsort(descending=True, stable=True)][:DEPTH].tolist())
        seconds = [seconds[0] + proposed - began, seconds[1] + time.perf_counter() - proposed]
        indices_of = {term: np.array(holders[term], dtype=np.int64) for term in sorted(asked_terms(asked))}
        nowhere = dict.fromkeys(indices_of, np.zeros(0, dtype=np.int64))  # these passages stand under no heading
        held = Postings(indices_of.keys(), indices_of, nowhere, frozenset(), len(texts))
        shares_C, weight = held.shares(proposed_C.numpy()), term_weight(len(question.ids), asked)
        for name, each_C in ((f"{OURS}, words", scores_C), (f"{OURS}, words, rare ones propose", all_C)):
            order_C = (each_C + weight * shares_C).argsort(descending=True, stable=True)
            found[name].append(proposed_C[order_C][:DEPTH].tolist())
        found["landmarks alone"].append(by_landmarks_C.tolist())
        for layer in weighed if len(weighed) > 1 else ():
            scores_N = scores_YN[model.memory_layers.index(layer)]
            found[f"landmarks, layer {layer}"].append(scores_N.topk(min(DEPTH, len(scores_N))).indices.tolist())
    milliseconds = [1000 * each / max(1, len(questions)) for each in seconds]
    print(f"a question: landmarks {milliseconds[0]:.1f} ms, tokens {milliseconds[1]:.1f} ms", flush=True)
    return dict(found)


def terms_of_blocks(stored: StoredKeys, texts: list[str]) -> list[set[str]]:
    """The words of each block, also those that a border cuts in two."""
    terms_N = [terms_of(text) for text in texts]
    for number, (left, right) in enumerate(pairwise(texts)):
        if stored.document_N[number] == stored.document_N[number + 1]:
            for beside in (number, number + 1):
                terms_N[beside] |= crossing_terms(left, right)
    return terms_N


def texts_of(model: LandmarkModel, data: TokenDocuments, blocks: Blocks, *, titles: bool) -> list[str]:
    """The blocks as text, with the title of their document in front or without."""
    owners = np.repeat(np.arange(len(data.ids)), np.diff(blocks.first))
    heads = [f"{data.titles[owner]}. " if titles and data.titles[owner] else "" for owner in owners]
    return [head + model.decode(ids) for head, ids in zip(heads, blocks.ids, strict=True)]


def bm25_ranking(model: LandmarkModel, texts: list[str], questions: list[TokenQuestion]) -> list[list[int]]:
    """BM25 over the words of the blocks (bm25s, its English stop words)."""
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
    asked = bm25s.tokenize([model.decode(question.ids) for question in questions], stopwords="en", show_progress=False)
    return index.retrieve(asked, k=DEPTH, show_progress=False)[0].tolist()


def minilm_ranking(
    folder: Path, model: LandmarkModel, blocks: list[str], questions: list[TokenQuestion]
) -> list[list[int]]:
    """all-MiniLM-L6-v2: mean of the token states, norm 1, inner product."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    encoder = AutoModel.from_pretrained(folder, use_safetensors=True, trust_remote_code=False).eval()

    @torch.inference_mode()
    def encode(texts: list[str]) -> torch.Tensor:
        out = torch.empty(len(texts), encoder.config.hidden_size)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), 32):
            rows = order[start : start + 32]
            batch = tokenizer(
                [texts[row] for row in rows], padding=True, truncation=True, max_length=256, return_tensors="pt"
            )
            mask = batch["attention_mask"][..., None]
            state = (encoder(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            out[rows] = torch.nn.functional.normalize(state, dim=-1)
        return out

    scores = encode([model.decode(q.ids) for q in questions]) @ encode(blocks).T
    return scores.topk(DEPTH).indices.tolist()


def report(
    found: dict[str, list[list[int]]], questions: list[TokenQuestion], gold: list[set[int]], spans: set[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """Print and return recall by ranking, source and depth (where the ranking reaches so deep).

    "spans" is all sources with answer spans together.
    """
    rows: dict[str, list[int]] = defaultdict(list)
    for number, question in enumerate(questions):
        rows[question.source + ("" if question.source in spans else " (no spans)")].append(number)
        rows["all"].append(number)
        if question.source in spans:
            rows["spans"].append(number)
        if question.source in ("squad11", "squad20", "disflqa"):
            rows["squad-like"].append(number)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for name, ranking in found.items():
        figures[name] = {}
        depths = [depth for depth in DEPTHS if depth <= max(DEPTH, len(ranking[0]))]
        print(f"{name}:  recall{''.join(f' @{depth}' for depth in depths)}")
        for source in sorted(rows, key=lambda s: (s not in ("all", "spans", "squad-like"), s)):
            hits = [float(np.mean([bool(gold[n] & set(ranking[n][:k])) for n in rows[source]])) for k in depths]
            figures[name][source] = {f"recall@{k}": round(hit, 4) for k, hit in zip(depths, hits, strict=True)} | {
                "questions": len(rows[source])
            }
            print(f"  {source:32}{''.join(f' {hit:.3f}' for hit in hits)}  ({len(rows[source])})", flush=True)
    return figures


if __name__ == "__main__":
    main()
