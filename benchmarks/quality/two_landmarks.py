"""Would a second landmark half a block further find more? By the landmarks of the shipped checkpoint alone.

    python benchmarks/quality/two_landmarks.py --data FOLDER

DATA/qa/squad11.dev.jsonl.xz: each article is one document, read by `prefill`; 60 questions of each, ranked by the mean
of their queries over all blocks: no token keys, titles or words. Shares of questions with a right block among the
first, and the difference from one landmark in pairs with its standard error.
"""

import argparse
import json
import random
import statistics
import sys
from pathlib import Path

import torch
from torch.nn.functional import normalize

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine

from model.checkpoint.load import load_backbone
from model.inference.prefill import prefill
from model.inference.prompt import encode_prompt
from research.landmark_lm.sources import read_contexts
from research.landmark_models import with_config
from retrieval.query.question import mean_query

FIRST = (1, 8, 32, 64, 128)
ASKED = 60  # of each article
MOST_CHARACTERS = 440_000


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data: Path = parser.parse_args().data
    print(json.dumps(machine.described()))
    torch.set_num_threads(1)
    model = load_backbone(ROOT / "model" / "default", device="cpu").eval()
    halved = with_config(model, block_size=32, window_blocks=8, context_blocks=4)
    rng = random.Random(5)
    articles = []
    for contexts in read_contexts(data / "qa" / "squad11.dev.jsonl.xz"):
        text, places = "", []
        for context in contexts:
            places += [(q, len(text) + start, len(text) + start + len(a)) for q, a, start in context.questions]
            text += context.text + "\n\n"
        articles.append((text, places))
    rng.shuffle(articles)
    one, two, pooled, asked, room = [], [], [], [], MOST_CHARACTERS
    for text, places in articles:
        if room <= 0:
            break
        room -= len(text)
        tokens = model.tokenize(text)
        before_one, before_two = sum(map(len, one)), sum(map(len, two)) // 2
        blocks = list(prefill(model, tokens.ids))
        one.append(torch.stack([block.keys_YGLD[0, :, -1] for block in blocks]))
        for block in blocks:
            keys_TE = normalize(block.keys_YGLD[0, :, : block.num_tokens].transpose(0, 1).flatten(1), dim=-1)
            half = max(1, len(keys_TE) // 2)
            rest = keys_TE[half:] if len(keys_TE) > half else keys_TE
            pooled.append(torch.stack((keys_TE[:half].mean(0), rest.mean(0), keys_TE.mean(0))))
        halves = [block.keys_YGLD[0, :, -1] for block in prefill(halved, tokens.ids)]
        two.append(torch.stack(halves + halves[-1:] * (len(halves) % 2)))
        for question, start, end in rng.sample(places, min(ASKED, len(places))):
            inside = [n for n in range(len(tokens.ids)) if tokens.starts[n] < end and start < tokens.ends[n]]
            of_one = sorted({before_one + n // 63 for n in inside})
            asked.append((question, of_one, sorted({before_two + n // 62 for n in inside})))
    report(ranks(model, torch.cat(one), torch.cat(two), torch.stack(pooled), asked))


def ranks(model, one_NGD, two_NGD, pooled_N3E, asked):
    """Of each way of ranking: how many blocks come before the best right one, a question each."""
    found: dict[str, list[int]] = {}
    for question, right, right_of_two in asked:
        prompt = model.prompt(question)
        query_GD = mean_query(model, encode_prompt(model, prompt.ids).queries_YHQD[:, :, prompt.question])[0]
        one_N = (one_NGD * query_GD).sum((1, 2))
        two_N = (two_NGD * query_GD).sum((1, 2)).view(-1, 2).amax(1)
        pooled_N3 = pooled_N3E @ query_GD.flatten()
        halves_N = pooled_N3[:, :2].amax(1)
        both_N = (one_N - one_N.mean()) / one_N.std() + (halves_N - halves_N.mean()) / halves_N.std()
        for name, scores_N, holds in (
            ("one landmark", one_N, right), ("two landmarks", two_N, right_of_two),
            ("one, and means of halves", both_N, right), ("means of halves", halves_N, right),
            ("mean of token keys", pooled_N3[:, 2], right),
        ):  # fmt: skip
            found.setdefault(name, []).append(int((scores_N > scores_N[holds].max()).sum()))
    return found


def report(found):
    for name, places in found.items():
        cells = []
        for first in FIRST:
            gains = [(a < first) - (b < first) for a, b in zip(places, found["one landmark"], strict=True)]
            error = statistics.stdev(gains) / len(gains) ** 0.5
            share = sum(place < first for place in places) / len(places)
            cells.append(f"@{first} {share:.3f} ({sum(gains) / len(gains):+.3f} ± {error:.3f})")
        print(f"{name} ({len(places)}): {', '.join(cells)}")


if __name__ == "__main__":
    main()
