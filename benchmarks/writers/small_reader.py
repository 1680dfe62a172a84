"""Train a small chat-shaped reader on made facts, to measure stored keys and values where no checkpoint can be
downloaded.

    python benchmarks/writers/small_reader.py --out reader

An ordinary Llama of a few hundred thousand weights with words as tokens, trained from scratch to answer questions of
one and two hops from up to six passages, all read in one pass. Then
`benchmarks/writers/writer_parity.py --writer reader --words 12 --pairs 3 --facts 2` measures what storing the
passages costs.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import made_facts
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from model.checkpoint.chat.chat_model import PREAMBLE

INSTRUCTION = "Answer briefly."
IN_SENTENCES = "Answer in sentences."
TEMPLATE = (
    "{{ '<|begin|>' }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|pad|>", "<|unknown|>", "<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
PAIRS = 3
FACTS_EACH = 2
# A reader of this size would need hours to learn all of them.
WORDS = {kind: words[:12] for kind, words in made_facts.WORDS.items()}
QUESTIONS = 5


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Words, single digits and marks as tokens."""
    chance, words = random.Random(0), set("0123456789[]:.,?") | {"Question"}
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True)]
    )
    texts = [PREAMBLE, INSTRUCTION, IN_SENTENCES, *WORDS["first_names"], *WORDS["towns"]]
    for _ in range(600):
        made = made_facts.made_library(chance, PAIRS, FACTS_EACH, WORDS)
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
    made = made_facts.made_library(chance, pairs, FACTS_EACH, WORDS)
    labels = chance.sample(range(100, 1000), len(made.passages))
    passages = "".join(
        f"[{label}] {passage.title} {passage.text}" for label, passage in zip(labels, made.passages, strict=True)
    )
    ids: list[int] = []
    answers: list[bool] = []
    user = f"<|begin|><|system|>{PREAMBLE}<|end|><|user|>{passages}"
    for question in made.questions[:QUESTIONS]:
        briefly = chance.random() < 0.5
        asked = f"{user}{INSTRUCTION if briefly else IN_SENTENCES} Question: {question.text}<|end|><|assistant|>"
        answer = f"{question.answer if briefly else question.sentence}<|end|>"
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
    """Shares of first questions answered with the right word, by hops."""
    chance, right = random.Random(12345), {1: 0, 2: 0}
    for _ in range(contexts):
        made = made_facts.made_library(chance, PAIRS, FACTS_EACH, WORDS)
        labels = chance.sample(range(100, 1000), len(made.passages))
        passages = "".join(f"[{n}] {one.title} {one.text}" for n, one in zip(labels, made.passages, strict=True))
        for hops in (1, 2):
            question = next(one for one in made.questions if one.hops == hops)
            asked = (
                f"<|begin|><|system|>{PREAMBLE}<|end|><|user|>{passages}{INSTRUCTION} Question: {question.text}"
                "<|end|><|assistant|>"
            )
            ids = tokenizer(asked, add_special_tokens=False)["input_ids"]
            (gold,) = tokenizer(question.answer, add_special_tokens=False)["input_ids"]
            right[hops] += model(torch.tensor([ids]), logits_to_keep=1).logits.argmax().item() == gold
    return {f"{hops} hops": right[hops] / contexts for hops in right}


@torch.no_grad()
def inclined_to_copy(model: Any) -> None:
    """Begin with heads that look for tokens like their own and pass on what they find (mimetic initialisation,
    arXiv 2305.09828, with the sign that recall needs): a network of this size then learns recall in minutes."""
    model.model.embed_tokens.weight.normal_(0, model.config.hidden_size**-0.5)
    for layer in model.model.layers:
        attention = layer.self_attn
        for weight in (attention.k_proj.weight, attention.v_proj.weight):
            nn.init.orthogonal_(weight)
        attention.q_proj.weight.copy_(attention.k_proj.weight + 0.1 * torch.randn_like(attention.k_proj.weight))
        attention.o_proj.weight.copy_(attention.v_proj.weight.T + 0.02 * torch.randn_like(attention.o_proj.weight))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--begin", type=Path, help="a reader to go on with, instead of a new one")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    arguments = parser.parse_args()
    tokenizer = word_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=arguments.width,
        intermediate_size=3 * arguments.width,
        num_hidden_layers=arguments.layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.convert_tokens_to_ids("<|begin|>"),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = AutoModelForCausalLM.from_config(config)
    inclined_to_copy(model)
    if arguments.begin:
        model = AutoModelForCausalLM.from_pretrained(arguments.begin)
    optimiser = torch.optim.AdamW(model.parameters(), lr=arguments.rate, betas=(0.9, 0.98), weight_decay=0.01)
    small, large = batches(tokenizer, 1, arguments.rows, [2]), batches(tokenizer, 2, arguments.rows, [2, 3])
    began, losses, done = time.perf_counter(), [], 0.0
    while done < 1:
        done = (time.perf_counter() - began) / (60 * arguments.minutes)
        for group in optimiser.param_groups:
            group["lr"] = arguments.rate * min(1, (len(losses) + 1) / 100) * max(0.01, math.cos(done * math.pi / 2))
        ids_BT, targets_BT = next(small if done < 0.2 and not arguments.begin else large)
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
