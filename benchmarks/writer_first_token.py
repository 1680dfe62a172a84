"""First token of a local writer over stored passages, against reading the same passages again with the same weights.

    python benchmarks/writer_first_token.py --shape smollm2-135m

Random weights in the shape of a published checkpoint; eight passages of 256 tokens, stored on disk. All sides include
the search in a library of the shipped finder, and take turns in one run:

    stored r    passages from the writer's memory, a share r of their tokens computed again
    again       the same writer, reading everything (r = 1)
    generate    Hugging Face's own `generate` on the same prompt, with its fastest attention

Prints one JSON object.
"""

from __future__ import annotations

import copy
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import machine
import subject
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel, Qwen2Config

from model.checkpoint.chat_model import ChatModel
from retrieval.library import Library
from retrieval.writers.local import LoadedWriter, loaded_writer, passage_ids, write_over
from retrieval.writers.prompt import closing_text
from retrieval.writers.protocol import WriterOptions, WriterPassage, WriterRequest
from tests.tiny_model import chat_tokenizer

QUESTION = "What moves the people near water?"
INSTRUCTION = "Answer in one sentence."
SHAPES: dict[str, PreTrainedConfig] = {
    "smollm2-135m": LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    ),
    "qwen2.5-0.5b": Qwen2Config(
        vocab_size=151936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    ),
}


def passages_of(model: ChatModel, number: int, tokens: int) -> tuple[WriterPassage, ...]:
    """Passages of that many tokens each, label, title and all."""
    text = subject.text_of(subject.load(None), 4 * number * tokens)
    passages = []
    for n in range(number):
        start = n * tokens
        longest = WriterPassage(n + 1, f"document{n}", "A passage", (n + 1,), text[start : start + tokens])
        surplus = len(passage_ids(model, [longest])[0]) - tokens
        passages.append(WriterPassage(n + 1, f"document{n}", "A passage", (n + 1,), longest.text[: tokens - surplus]))
    return tuple(passages)


def first_token(loaded: LoadedWriter, request: WriterRequest, repair: float) -> None:
    next(write_over(loaded, request, repair, lambda: False))


def generate(twin: PreTrainedModel, ids: torch.Tensor) -> None:
    with torch.inference_mode():
        twin.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False, pad_token_id=0)


def measured(library: Library, sides: dict[str, Callable[[], None]], runs: int) -> dict[str, list[float]]:
    """Seconds of every run, the sides taking turns."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(runs + 1):
        for name, side in sides.items():
            began = time.perf_counter()
            library.search(QUESTION, k=8)
            side()
            seconds[name].append(time.perf_counter() - began)
    return {name: times[1:] for name, times in seconds.items()}


def main() -> None:
    parser = subject.options(__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--passages", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    arguments = subject.chosen(parser)
    torch.manual_seed(0)
    backbone = AutoModelForCausalLM.from_config(SHAPES[arguments.shape], attn_implementation="sdpa").eval()
    twin = AutoModelForCausalLM.from_config(copy.deepcopy(SHAPES[arguments.shape]), attn_implementation="sdpa")
    twin.load_state_dict(backbone.state_dict())
    model = ChatModel(backbone, chat_tokenizer(), source=arguments.shape)
    passages = passages_of(model, arguments.passages, arguments.tokens)
    request = WriterRequest(INSTRUCTION, QUESTION, passages, options=WriterOptions(max_tokens=2))
    read = passage_ids(model, passages)
    suffix = model.suffix_ids(f"{INSTRUCTION}\n\n{closing_text(request)}")
    ids = torch.tensor([[*model.prefix_ids, *(token for tokens in read for token in tokens), *suffix]])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "document.txt"
        path.write_text(subject.text_of(subject.load(arguments.model), 8192))
        with Library.open(Path(folder) / "home", subject.load(arguments.model)) as library:
            library.run_job(library.submit(path).id)
            loaded = loaded_writer(model, Path(folder))
            began = time.perf_counter()
            first_token(loaded, request, 0.0)  # reads and stores the passages
            reading = time.perf_counter() - began
            seconds = measured(
                library,
                {
                    "stored 0": lambda: first_token(loaded, request, 0.0),
                    "stored 0.1": lambda: first_token(loaded, request, 0.1),
                    "stored 0.2": lambda: first_token(loaded, request, 0.2),
                    "stored 0.3": lambda: first_token(loaded, request, 0.3),
                    "again": lambda: first_token(loaded, request, 1.0),
                    "generate": lambda: generate(twin.eval(), ids),
                },
                arguments.runs,
            )
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    best = min(medians["again"], medians["generate"])
    result = {
        **machine.described(arguments.threads),
        "shape": arguments.shape,
        "passage_tokens": [len(tokens) for tokens in read],
        "prefix_tokens": len(model.prefix_ids),
        "question_tokens": len(suffix),
        "seconds_median": {name: round(value, 4) for name, value in medians.items()},
        "seconds_worst": {name: round(max(times), 4) for name, times in seconds.items()},
        "first_reading_and_storing": round(reading, 4),
        "ratio_to_the_faster_reading": {
            name: round(best / value, 2) for name, value in medians.items() if name.startswith("stored")
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
