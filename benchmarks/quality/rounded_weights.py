"""What becomes of finder and reader when their weights are rounded: the same questions with two checkpoints.

    python benchmarks/quality/rounded_weights.py --data FOLDER --before FOLDER --after FOLDER [--part reader]

Files and bytes; processor time of loading; for the reader F1, exact match and how often its sentence holds the answer
from the gold passage, how far its distributions of start and end move (KL divergence, nats) and for how many questions
its best span stays the same; for the finder the cosine of keys, recall of a gold block, and how much of the best
blocks stays the same (all through the code that search uses).

Axes: N blocks, G KV heads, L tokens in a block (landmark last), D head dim.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "quality")]

import machine
import torch
from fewer_bits import BEST, proposed, ranking
from retrieval_quality import Blocks, development, drawn, stored_keys

from model.checkpoint.load import load_backbone
from model.reading.second_look import FOLDER, load_second_look
from model.scoring.span_reader import SpanLogits
from model.training.evaluation.joint_reading import judge_joint
from model.training.evaluation.span_reading import summary
from model.training.recipes.joint_reader import DEV, development_questions

PARTS = ("reader", "finder")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with qa/")
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--after", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, help="only this one")
    parser.add_argument("--most", type=int, default=100, help="questions of each set, for the reader")
    parser.add_argument("--documents", type=int, default=150, help="for the finder")
    parser.add_argument("--questions", type=int, default=400, help="for the finder")
    given = parser.parse_args()
    print(json.dumps(machine.described(torch.get_num_threads())))
    folders = {"before": given.before, "after": given.after}
    for name, folder in folders.items():
        sizes = {str(each.relative_to(folder)): each.stat().st_size for each in folder.rglob("*") if each.is_file()}
        print(f"{name}: {sum(sizes.values()) / 1e6:.2f} MB; {json.dumps(sizes, sort_keys=True)}")
    for part in PARTS if given.part is None else (given.part,):
        {"reader": compare_readers, "finder": compare_finders}[part](folders, given)


def loading(load: Callable[[], Any]) -> float:
    """Seconds of processor time, the median of three."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        load()
        taken.append(time.process_time() - began)
    return median(taken)


def compare_readers(folders: dict[str, Path], given: argparse.Namespace) -> None:
    questions = [each for source in DEV for each in development_questions(given.data, source, given.most)]
    read: dict[str, list[SpanLogits]] = {}
    for name, folder in folders.items():
        print(f"reader {name}: loaded in {loading(lambda folder=folder: load_second_look(folder / FOLDER)):.3f} s")
        look = load_second_look(folder / FOLDER)
        kept = read.setdefault(name, [])
        look.reader.register_forward_hook(lambda _, __, logits, kept=kept: kept.append(logits))
        for source, figures in summary(judge_joint(look.reader, look.tokenizer, questions)).items():
            print(f"  {source:20} {json.dumps({key: round(each, 3) for key, each in figures.items()})}", flush=True)
    moved = [difference(*pair) for pair in zip(*read.values(), strict=True)]
    print("reader, before to after: questions, KL of start and end, share with the same first and last token")
    for source in (*DEV, None):
        some = [each for each, question in zip(moved, questions, strict=True) if source in (None, question.source)]
        kl, same = (fmean(each) for each in zip(*some, strict=True))
        print(f"  {source or 'all':20} {len(some):5} {kl:.5f} {same:.4f}")


def difference(before: SpanLogits, after: SpanLogits) -> tuple[float, bool]:
    """KL divergence of the start's and the end's distribution together, in nats; whether both have the same mode."""
    logs = [(one[0].log_softmax(-1), other[0].log_softmax(-1)) for one, other in zip(before, after, strict=True)]
    divergence = sum(float((one.exp() * (one - other)).sum()) for one, other in logs)
    return divergence, all(int(one.argmax()) == int(other.argmax()) for one, other in logs)


def compare_finders(folders: dict[str, Path], given: argparse.Namespace) -> None:
    for name, folder in folders.items():
        print(f"finder {name}: loaded in {loading(lambda folder=folder: load_backbone(folder, device='cpu')):.3f} s")
    found, kept = {}, {}
    for name, folder in folders.items():
        model = load_backbone(folder, device="cpu", dtype=torch.float32)
        data, _ = development(model, given.data)
        asked = drawn(data, given.documents, given.questions)
        blocks = Blocks(model, data)
        gold = [blocks.gold(each) for each in asked]
        stored = stored_keys(model, data, blocks)
        found[name] = [ranking(stored, stored.keys_WNGLD, *proposed(model, stored, each)) for each in asked]
        kept[name] = stored
        recall = [fmean(bool(g & {*r[:k]}) for g, r in zip(gold, found[name], strict=True)) for k in (1, BEST, 20)]
        print(f"finder {name}: {len(blocks.ids)} blocks, {len(asked)} questions, recall @1, @8, @20:", *recall)
    pairs = list(zip(*found.values(), strict=True))
    first = fmean(one[0] == other[0] for one, other in pairs)
    best = fmean(len({*one[:BEST]} & {*other[:BEST]}) / BEST for one, other in pairs)
    print(f"finder, before to after: same first block {first:.4f}, of the best {BEST} {best:.4f}")
    lengths_N = kept["before"].lengths_N
    valid_NL = torch.arange(kept["before"].keys_WNGLD[0].shape[2]) < lengths_N[:, None]
    for one_NGLD, other_NGLD in zip(kept["before"].keys_WNGLD, kept["after"].keys_WNGLD, strict=True):
        cosine_NGL = torch.cosine_similarity(one_NGLD.float(), other_NGLD.float(), dim=-1)
        cosine_X = cosine_NGL.movedim(1, 2)[valid_NL].flatten()
        lowest = float(cosine_X.kthvalue(max(1, len(cosine_X) // 100)).values)
        print(f"keys of tokens, a head each: cosine {float(cosine_X.mean()):.5f}, lowest hundredth {lowest:.5f}")
    cosine_YGN = torch.cosine_similarity(kept["before"].landmarks_YGND, kept["after"].landmarks_YGND, dim=-1)
    print(f"landmarks: cosine {float(cosine_YGN.mean()):.5f}, lowest {float(cosine_YGN.min()):.5f}")


if __name__ == "__main__":
    main()
