"""Train a small chat-shaped reader on made facts, to measure stored keys and values where no checkpoint can be
downloaded.

    python benchmarks/small_reader.py --out reader

An ordinary Llama of about a million weights with words as tokens, trained from scratch to answer questions of one and
two hops from up to eight passages, all read in one pass. `benchmarks/writer_parity.py --writer reader` then measures
what storing the passages costs.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import made_facts
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

PREAMBLE = "You answer questions from numbered passages of documents."
INSTRUCTION = "Answer briefly and cite."
IN_SENTENCES = "Answer in sentences and cite."
TEMPLATE = (
    "{{ '<|begin|>' }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|pad|>", "<|unknown|>", "<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
MOST_PAIRS = 4
QUESTIONS = 8


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Words, single digits and marks as tokens."""
    chance, words = random.Random(0), set("0123456789[]:.,?") | {"Question"}
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True)]
    )
    texts = [PREAMBLE, INSTRUCTION, IN_SENTENCES, *made_facts.WORDS["first_names"], *made_facts.WORDS["towns"]]
    for _ in range(300):
        made = made_facts.made_library(chance, MOST_PAIRS)
        texts += [passage.text for passage in made.passages] + [question.text for question in made.questions]
    for text in texts:
        words |= {word for word, _ in split.pre_tokenize_str(text)}
    tokenizer = Tokenizer(
        WordLevel({word: n for n, word in enumerate([*SPECIAL, *sorted(words)])}, unk_token="<|unknown|>")
    )
    tokenizer.pre_tokenizer = split
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", unk_token="<|unknown|>", eos_token="<|end|>"
    )
    fast.add_special_tokens({"additional_special_tokens": SPECIAL[2:]})
    fast.chat_template = TEMPLATE
    return fast


def conversation(tokenizer: PreTrainedTokenizerFast, chance: random.Random, pairs: int) -> tuple[list[int], list[bool]]:
    """Tokens of passages with several questions and answers behind them; True at the tokens of answers."""
    made = made_facts.made_library(chance, pairs)
    labels = chance.sample(range(100, 1000), len(made.passages))
    passages = "".join(
        f"[{label}] {passage.title} {passage.text}" for label, passage in zip(labels, made.passages, strict=True)
    )
    ids: list[int] = []
    answers: list[bool] = []
    user = f"<|begin|><|system|>{PREAMBLE}<|end|><|user|>{passages}"
    for question in made.questions[:QUESTIONS]:
        briefly = chance.random() < 0.6
        asked = f"{user}{INSTRUCTION if briefly else IN_SENTENCES} Question: {question.text}<|end|><|assistant|>"
        answer = f"{question.answer if briefly else question.sentence} [{labels[question.passage]}]<|end|>"
        for text, answers_it in ((asked, False), (answer, True)):
            new = tokenizer(text, add_special_tokens=False)["input_ids"]
            ids += new
            answers += [answers_it] * len(new)
        user = "<|user|>"
    return ids, answers


def batches(
    tokenizer: PreTrainedTokenizerFast, seed: int, rows: int, pairs: list[int]
) -> Iterator[tuple[Tensor, Tensor]]:
    """ids_BT and targets_BT, -100 where nothing is learned."""
    chance = random.Random(seed)
    while True:
        number = chance.choice(pairs)
        made = [conversation(tokenizer, chance, number) for _ in range(rows)]
        longest = max(len(ids) for ids, _ in made)
        ids_BT = torch.zeros((rows, longest), dtype=torch.long)
        targets_BT = torch.full((rows, longest), -100)
        for row, (ids, answers) in enumerate(made):
            ids_BT[row, : len(ids)] = torch.tensor(ids)
            learned = torch.tensor(answers[1:])
            targets_BT[row, : len(ids) - 1] = torch.where(learned, torch.tensor(ids[1:]), -100)
        yield ids_BT, targets_BT


@torch.no_grad()
def right_answers(model: nn.Module, tokenizer: PreTrainedTokenizerFast, contexts: int = 48) -> dict[str, float]:
    """Shares of first questions answered with every token right, the citation included; by hops."""
    chance, right = random.Random(12345), {1: [0, 0], 2: [0, 0]}
    for _ in range(contexts):
        made = made_facts.made_library(chance, MOST_PAIRS)
        labels = chance.sample(range(100, 1000), len(made.passages))
        passages = "".join(f"[{n}] {one.title} {one.text}" for n, one in zip(labels, made.passages, strict=True))
        for hops in (1, 2):
            question = next(one for one in made.questions if one.hops == hops)
            asked = (
                f"<|begin|><|system|>{PREAMBLE}<|end|><|user|>{passages}{INSTRUCTION} Question: {question.text}"
                "<|end|><|assistant|>"
            )
            ids = tokenizer(asked, add_special_tokens=False)["input_ids"]
            gold = tokenizer(f"{question.answer} [{labels[question.passage]}]", add_special_tokens=False)["input_ids"]
            logits = model(torch.tensor([ids + gold])).logits[0, len(ids) - 1 : -1]
            right[hops][0] += logits[0].argmax().item() == gold[0]
            right[hops][1] += logits.argmax(-1).tolist() == gold
    return {f"{hops} hops": right[hops][0] / contexts for hops in right} | {
        f"{hops} hops, cited": right[hops][1] / contexts for hops in right
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--width", type=int, default=128)
    arguments = parser.parse_args()
    tokenizer = word_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=arguments.width,
        intermediate_size=3 * arguments.width,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.width // 32,
        num_key_value_heads=arguments.width // 64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.convert_tokens_to_ids("<|begin|>"),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = AutoModelForCausalLM.from_config(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=arguments.rate, betas=(0.9, 0.98), weight_decay=0.01)
    small, large = batches(tokenizer, 1, arguments.rows, [2]), batches(tokenizer, 2, arguments.rows, [2, 3, 4, 4])
    began, losses, done = time.perf_counter(), [], 0.0
    while done < 1:
        done = (time.perf_counter() - began) / (60 * arguments.minutes)
        for group in optimiser.param_groups:
            group["lr"] = arguments.rate * min(1, (len(losses) + 1) / 100) * max(0.01, math.cos(done * math.pi / 2))
        ids_BT, targets_BT = next(small if done < 0.2 else large)
        hidden_BTE = model.model(ids_BT).last_hidden_state
        learned_BT = targets_BT != -100
        loss = nn.functional.cross_entropy(model.lm_head(hidden_BTE[learned_BT]), targets_BT[learned_BT])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        if len(losses) % 200 == 0 or done >= 1:
            shares = right_answers(model.eval(), tokenizer)
            model.train()
            report = {"step": len(losses), "loss": round(sum(losses[-200:]) / 200, 4), "done": round(done, 3)}
            print(json.dumps(report | {name: round(share, 3) for name, share in shares.items()}), flush=True)
            model.save_pretrained(arguments.out)
            tokenizer.save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
