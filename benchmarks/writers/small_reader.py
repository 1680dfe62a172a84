"""Train a small chat-shaped reader on made facts, to measure stored keys and values where no checkpoint can be
downloaded.

    python benchmarks/writers/small_reader.py --out reader

An ordinary Llama of less than a million weights with words as tokens, trained from scratch on one core to answer
questions of one and two hops from six passages, all read in one pass. Then
`benchmarks/writers/writer_parity.py --writer reader --pairs 3 --facts 2 --instruction "Answer in sentences."` measures
what storing the passages costs. Briefly it answers questions of one hop; of two, it has to write down the first.

What lets so small a network learn to look things up, where questions alone leave it guessing among candidates:

- It begins with heads that look one to four tokens back, and with heads that look for what stands behind tokens like
  their own (`inclined_to_look_up`). Both are trained like everything else.
- Two lessons come first: facts of three random tokens, listed four times, each time in another order. A list that came
  in the same order would be learned by distance. In the first lesson all tokens of a list differ; in the second the
  third token follows from the first two together, from neither alone. The next lesson begins when one is learned.
- Many questions about six passages are asked at once, each knowing the passages and nothing of the other questions
  (`batch`): many answers are learned from for one reading of the passages.
- Half of the texts want answers in sentences, which go from hop to hop in words.
- Words to be looked up count for more than the others; no two titles share one, so that guessing hardly pays.

Axes: B rows, T tokens, V vocabulary, N tokens with a target, E hidden width, D of a head, P pairs that are rotated.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
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
NOTHING = -100
"""Target of tokens from which nothing is learned."""
LISTED, LISTS = 6, 4
"""Facts of a lesson, and how often they are listed."""
LEARNED = 0.9
"""Share of right targets with which a lesson ends."""
HEADS = 4
BASE = 1e5
"""Of the rotary frequencies."""
SPREAD, LOOKING_BACK, ALIKE = 0.3, 7.0, 4.0
"""To begin with: of the embeddings, and how decidedly heads look back, and for tokens like their own."""
WARM_UP = 60
"""Steps in which the rate rises."""
COOL_DOWN = 0.4
"""Last part of the training, in which it falls."""
BRIEFLY = 0.5
"""Share of the texts that want brief answers."""
ASKED_FOR_SENTENCES = 8
"""Questions of a text that wants sentences; of the others it has all, about as many tokens."""
SMALL_WORDS = 0.1
"""Weight of words that are no names or values."""
KINDS = ("listed", "1 hop", "2 hops", "in sentences")
"""Kinds of targets: tokens of the lessons, brief answers by hops, all tokens of sentences."""
IN_WORDS = 3


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Words, single digits and marks as tokens."""
    split = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True)]
    )
    words = set("0123456789[]:.,?") | {"Question"} | {word for kind in made_facts.WORDS.values() for word in kind}
    chance, texts = random.Random(0), [PREAMBLE, INSTRUCTION, IN_SENTENCES]
    for _ in range(100):
        texts += [text for one in made_facts.made_library(chance, PAIRS).questions for text in (one.text, one.sentence)]
    words |= {word for text in texts for word, _ in split.pre_tokenize_str(text)}
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


@dataclass
class Row:
    """One text with its questions. `question`: 0 for what all of them know, else the question's number. `kinds`:
    of targets, as in `KINDS`; 0 for the end of a brief answer."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    question: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Batch:
    ids_BT: Tensor
    positions_BT: Tensor
    visible_BTT: Tensor
    targets_BT: Tensor
    kinds_BT: Tensor


def asked_text(made: made_facts.MadeLibrary, chance: random.Random, instruction: str) -> str:
    """The prompt up to the question, as a writer gets it."""
    labels = chance.sample(range(100, 1000), len(made.passages))
    passages = "".join(f"[{n}] {one.title} {one.text} " for n, one in zip(labels, made.passages, strict=True))
    return f"<|begin|><|system|>{PREAMBLE}<|end|><|user|>{passages}{instruction} Question:"


def row_of(tokenizer: PreTrainedTokenizerFast, chance: random.Random) -> Row:
    """Six passages, and questions about them, each at the same position behind the passages."""
    made = made_facts.made_library(chance, PAIRS, FACTS_EACH)
    briefly = chance.random() < BRIEFLY
    common = _tokens(tokenizer, asked_text(made, chance, INSTRUCTION if briefly else IN_SENTENCES))
    start, row = len(common), Row()
    _extend(row, common, 0, 0)
    for number, question in enumerate(made.questions if briefly else made.questions[:ASKED_FOR_SENTENCES], 1):
        asked = _tokens(tokenizer, f"{question.text}<|end|><|assistant|>")
        answer = _tokens(tokenizer, f"{question.answer if briefly else question.sentence}<|end|>")
        _extend(row, asked + answer, start, number)
        first = len(row.ids) - len(answer) - 1
        row.targets[first:-1] = answer
        row.kinds[first] = question.hops
        if not briefly:
            row.kinds[first:-1] = [IN_WORDS] * len(answer)
    return row


def _extend(row: Row, ids: list[int], start: int, question: int) -> None:
    row.ids += ids
    row.positions += range(start, start + len(ids))
    row.question += [question] * len(ids)
    row.targets += [NOTHING] * len(ids)
    row.kinds += [0] * len(ids)


def _tokens(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def batch(tokenizer: PreTrainedTokenizerFast, chance: random.Random, rows: int) -> Batch:
    """Texts with their questions. A token knows what stands before it in what all questions share, and in its own."""
    made = [row_of(tokenizer, chance) for _ in range(rows)]
    longest = max(len(row.ids) for row in made)

    def padded(name: str, value: int) -> Tensor:
        lists = [getattr(row, name) for row in made]
        return torch.tensor([one + [value] * (longest - len(one)) for one in lists])

    question_BT = padded("question", -1)
    same_BTT = question_BT[:, :, None] == question_BT[:, None]
    before_TT = torch.ones(longest, longest, dtype=torch.bool).tril()
    visible_BTT = before_TT & (same_BTT | (question_BT == 0)[:, None])
    return Batch(padded("ids", 0), padded("positions", 0), visible_BTT, padded("targets", NOTHING), padded("kinds", 0))


def listed_facts(vocabulary: int, chance: random.Random, rows: int, *, two_keys: bool) -> Batch:
    """Facts of three random tokens, listed again and again in other orders: what follows from earlier lists is a
    target. two_keys: a fact shares its first token with others, and its second with others again."""
    length = 3 * LISTED * LISTS
    ids, targets = [], []
    for _ in range(rows):
        if two_keys:
            keys = chance.sample(range(len(SPECIAL), vocabulary), 6)
            both = chance.sample([(one, other) for one in keys[:3] for other in keys[3:]], LISTED)
            facts = [(*pair, chance.randrange(len(SPECIAL), vocabulary)) for pair in both]
        else:
            tokens = chance.sample(range(len(SPECIAL), vocabulary), 3 * LISTED)
            facts = [tuple(tokens[n : n + 3]) for n in range(0, 3 * LISTED, 3)]
        lists = [chance.sample(facts, LISTED) for _ in range(LISTS)]
        ids.append([token for listed in lists for fact in listed for token in fact])
        known = [(NOTHING if two_keys else second, third, NOTHING) for listed in lists for _, second, third in listed]
        targets.append([token for fact in known for token in fact])
    targets_BT = torch.tensor(targets)
    targets_BT[:, : 3 * LISTED] = NOTHING
    positions_BT = (torch.arange(length) + chance.randrange(100)).expand(rows, length)
    visible_BTT = torch.ones(rows, length, length, dtype=torch.bool).tril()
    return Batch(torch.tensor(ids), positions_BT, visible_BTT, targets_BT, torch.zeros_like(targets_BT))


@torch.no_grad()
def right_answers(model: Any, tokenizer: PreTrainedTokenizerFast, contexts: int = 50) -> dict[str, float]:
    """Shares of questions answered with the right word, in sentences, one of each number of hops for each text."""
    chance, right = random.Random(12345), {1: 0, 2: 0}
    model.eval()
    for _ in range(contexts):
        made = made_facts.made_library(chance, PAIRS, FACTS_EACH)
        before = asked_text(made, chance, IN_SENTENCES)
        for hops in right:
            question = next(one for one in made.questions if one.hops == hops)
            ids_BT = torch.tensor([_tokens(tokenizer, f"{before} {question.text}<|end|><|assistant|>")])
            written_BT = model.generate(ids_BT, max_new_tokens=24, do_sample=False)
            right[hops] += question.answer in tokenizer.decode(written_BT[0, ids_BT.shape[1] :])
    model.train()
    return {KINDS[hops]: round(right[hops] / contexts, 3) for hops in right}


def new_reader(tokenizer: PreTrainedTokenizerFast, layers: int, width: int) -> Any:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": BASE},
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.convert_tokens_to_ids("<|begin|>"),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # Of the forms of attention that take a mask, this one is the quickest on a processor at these sizes.
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    inclined_to_look_up(model, width)
    return model


@torch.no_grad()
def inclined_to_look_up(model: Any, width: int) -> None:
    """Weights to begin with. The heads of the first layer look 1, 2, 3 and 4 tokens back, by position alone, and write
    what they find into directions of their own. A head of the other layers looks for places where a head of the first
    layer found a token like its own, and passes on what stands there.

    Positions show in the first dimension, which is the same for all tokens: a query turned back by r tokens meets the
    key r tokens before it (in the frequencies that change within a few tokens; tokens are compared in the others).
    """
    head_size = width // HEADS
    half = head_size // 2
    frequency_P = BASE ** (-torch.arange(half) / half)
    quick_P, slow = frequency_P > 0.05, torch.nonzero((frequency_P < 0.03).repeat(2))[:, 0]
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            weight.normal_(0, width**-0.5 * (0.1 if "down_proj" in name else 1.0))
    embedding_VE = model.model.embed_tokens.weight.normal_()
    embedding_VE[:, 0] = 0
    embedding_VE.mul_(SPREAD * (width - 1) ** 0.5 / embedding_VE.norm(dim=1, keepdim=True))
    embedding_VE[:, 0] = SPREAD
    first, *others = [layer.self_attn for layer in model.model.layers]
    found_EE, written_EE = (nn.init.orthogonal_(torch.empty(width, width)) for _ in range(2))
    found_EE[:, 0] = 0
    written_EE[0] = 0
    first.v_proj.weight.copy_(found_EE)
    first.o_proj.weight.copy_(written_EE)
    for head in range(HEADS):
        rows, back_P = slice(head * head_size, (head + 1) * head_size), (head + 1) * frequency_P
        query_DE, key_DE = first.q_proj.weight[rows].mul_(0.1), first.k_proj.weight[rows].mul_(0.1)
        key_DE[:, 0] = LOOKING_BACK * torch.cat((quick_P.float(), torch.zeros(half)))
        query_DE[:, 0] = LOOKING_BACK * torch.cat((quick_P * back_P.cos(), -(quick_P * back_P.sin())))
        for attention in others:
            for projection, told_apart_DE in (
                (attention.q_proj, found_EE[rows]),
                (attention.k_proj, written_EE.T[rows]),
            ):
                projection.weight[rows] = 0.02 * torch.randn(head_size, width)
                projection.weight[rows][slow] += ALIKE * told_apart_DE[: len(slow)]
    for attention in others:
        passed_on_EE = nn.init.orthogonal_(torch.empty(width, width))
        attention.v_proj.weight.copy_(passed_on_EE)
        attention.o_proj.weight.copy_(passed_on_EE.T)


def added_mask(visible_BTT: Tensor) -> Tensor:
    """(B, 1, T, T), added to the scores of all heads."""
    return torch.zeros(visible_BTT.shape).masked_fill(~visible_BTT, -1e9)[:, None]


def weights_of(tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """weight_V of each token as a target."""
    weight_V = torch.full((len(tokenizer),), SMALL_WORDS)
    weight_V[[tokenizer.convert_tokens_to_ids(word) for kind in made_facts.WORDS.values() for word in kind]] = 1.0
    return weight_V


def loss_of(model: Any, made: Batch, weight_V: Tensor | None = None) -> tuple[Tensor, dict[int, float]]:
    """The mean loss over all targets, and the shares of targets that come first, by kind."""
    learned_BT = made.targets_BT != NOTHING
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden_BTE = model.model(
            made.ids_BT,
            position_ids=made.positions_BT,
            attention_mask=added_mask(made.visible_BTT),
        ).last_hidden_state
        logits_NV = model.lm_head(hidden_BTE[learned_BT]).float()
    targets_N, kinds_N = made.targets_BT[learned_BT], made.kinds_BT[learned_BT]
    first_N = (logits_NV.argmax(-1) == targets_N).float()
    shares = {int(kind): first_N[kinds_N == kind].mean().item() for kind in kinds_N.unique()}
    return nn.functional.cross_entropy(logits_NV, targets_N, weight_V), shares


def optimiser_of(model: Any) -> torch.optim.Optimizer:
    """Embeddings and norms do not decay."""
    parameters = dict(model.named_parameters())
    kept = [one for name, one in parameters.items() if one.ndim < 2 or "embed" in name]
    decaying = [one for name, one in parameters.items() if one.ndim == 2 and "embed" not in name]
    groups = [{"params": kept, "weight_decay": 0.0}, {"params": decaying, "weight_decay": 0.05}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.98))


class Training:
    """One lesson after the other, on a budget of processor time. `rate`: of the optimiser, at its highest."""

    def __init__(self, model: Any, rate: float, minutes: float):
        self.model, self.optimiser = model, optimiser_of(model)
        self._rate, self._seconds, self._began = rate, 60 * minutes, time.process_time()
        self.steps = 0
        self._shares: dict[int, list[float]] = defaultdict(list)

    @property
    def done(self) -> float:
        """Part of the budget that is spent."""
        return (time.process_time() - self._began) / self._seconds

    def step(self, made: Batch, weight_V: Tensor | None = None) -> None:
        self.steps += 1
        rate = self._rate * min(1.0, self.steps / WARM_UP, max(0.02, (1 - self.done) / COOL_DOWN))
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        loss, shares = loss_of(self.model, made, weight_V)
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        for kind, share in shares.items():
            self._shares[kind].append(share)

    def lately(self) -> dict[str, float]:
        """Shares of targets that came first since the last call, by kind."""
        named = {f"{KINDS[kind]}": round(sum(one) / len(one), 3) for kind, one in sorted(self._shares.items())}
        self._shares.clear()
        return named


def learn_lists(training: Training, chance: random.Random, vocabulary: int, *, two_keys: bool) -> None:
    share = 0.0
    while share < LEARNED and training.done < 1:
        for _ in range(20):
            training.step(listed_facts(vocabulary, chance, rows=16, two_keys=two_keys))
        share = training.lately()[KINDS[0]]
    report(training, listed=share)


def report(training: Training, **shares: float) -> None:
    print(json.dumps({"step": training.steps, "done": round(training.done, 3), **shares}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=3.5, help="of processor time")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tokenizer, chance = word_tokenizer(), random.Random(1)
    model = new_reader(tokenizer, arguments.layers, arguments.width)
    training = Training(model, arguments.rate, arguments.minutes)
    for two_keys in (False, True):
        learn_lists(training, chance, len(tokenizer), two_keys=two_keys)
    weight_V = weights_of(tokenizer)
    while training.done < 1:
        training.step(batch(tokenizer, chance, arguments.rows), weight_V)
        if training.steps % 100 == 0:
            report(training, **training.lately())
            model.save_pretrained(arguments.out)
    report(training, **right_answers(model, tokenizer))
    model.save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)


if __name__ == "__main__":
    main()
