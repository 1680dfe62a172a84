"""First token of a local writer over stored passages, against reading the same passages again with the same weights.

    python benchmarks/writers/writer_first_token.py --shape smollm2-135m
    python benchmarks/writers/writer_first_token.py --writer Qwen/Qwen2.5-0.5B-Instruct

Random weights in the shape of a published checkpoint, or a checkpoint; eight passages of 256 tokens, stored on disk.
All sides include the search in a library of the shipped finder, and take turns in one run:

    stored r    passages from the writer's memory, a share r of their tokens computed again
    again       the same writer, reading everything (r = 1)
    generate    Hugging Face's own `generate` on the same prompt, with its fastest attention

Prints one JSON object: seconds by the clock, and of the processor, which a busy machine does not change.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import machine
import subject
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel, Qwen2Config

from model.checkpoint.chat_model import ChatModel
from model.checkpoint.landmark_model import LandmarkModel
from model.checkpoint.load import load_chat_model
from retrieval.library import Library
from retrieval.types.writer import WriterPassage, WriterRequest
from retrieval.writers.local import LoadedWriter, loaded_writer, passage_ids, write_over
from retrieval.writers.prompt import closing_text
from tests.tiny_model import CHAT_TEMPLATE

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


def chosen_model(arguments: argparse.Namespace, finder: LandmarkModel) -> tuple[ChatModel, PreTrainedModel]:
    """The writer, and Hugging Face's own network over the same weights, with its fastest attention."""
    if arguments.writer:
        model = load_chat_model(arguments.writer, device="cpu")
        backbone = model.backbone
        shape = backbone.config
    else:
        torch.manual_seed(0)
        shape = SHAPES[arguments.shape]
        backbone = AutoModelForCausalLM.from_config(shape, attn_implementation="sdpa").eval()
        finder.tokenizer.chat_template = CHAT_TEMPLATE  # a tokenizer of words, as published checkpoints have
        model = ChatModel(backbone, finder.tokenizer, source=arguments.shape)
    twin = AutoModelForCausalLM.from_config(copy.deepcopy(shape), attn_implementation="sdpa", dtype=model.dtype)
    twin.load_state_dict(backbone.state_dict(), assign=True)  # one copy of the weights
    return model, twin.eval()


def passages_of(model: ChatModel, finder: LandmarkModel, number: int, tokens: int) -> tuple[WriterPassage, ...]:
    """Passages of about that many tokens each, label, title and all."""
    words = subject.text_of(finder, 2 * number * tokens).split()
    passages: list[WriterPassage] = []
    while len(passages) < number:
        n = len(passages)
        taken = tokens - 10
        while True:
            passage = WriterPassage(n + 1, f"document{n}", "A passage", (n + 1,), " ".join(words[:taken]))
            if len(passage_ids(model, [passage])[0]) <= tokens:
                break
            taken -= 1
        passages.append(passage)
        del words[:taken]
    return tuple(passages)


def first_token(loaded: LoadedWriter, request: WriterRequest, repair: float) -> None:
    next(write_over(loaded, request, repair, lambda: False))


def generate(twin: PreTrainedModel, ids: torch.Tensor) -> None:
    with torch.inference_mode():
        twin.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False, pad_token_id=0)


def measured(
    library: Library, sides: dict[str, Callable[[], None]], runs: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Medians of the runs, the sides taking turns: seconds by the clock, and of the processor."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, side in sides.items():
            began, used = time.perf_counter(), time.process_time()
            library.search(QUESTION, k=8)
            side()
            seconds[name].append((time.perf_counter() - began, time.process_time() - used))
    clock, processor = (
        {name: round(statistics.median(pair[which] for pair in pairs), 4) for name, pairs in seconds.items()}
        for which in (0, 1)
    )
    return clock, processor


def ratios(medians: dict[str, float]) -> dict[str, float]:
    """How many times faster than the faster way of reading again."""
    best = min(medians["again"], medians["generate"])
    return {name: round(best / value, 2) for name, value in medians.items() if name.startswith("stored")}


def main() -> None:
    parser = subject.options(__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--writer", help="a checkpoint instead of a shape: its folder, GGUF file or name on the hub")
    parser.add_argument("--passages", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    arguments = subject.parse(parser)
    finder = subject.load(arguments.model)
    model, twin = chosen_model(arguments, finder)
    passages = passages_of(model, finder, arguments.passages, arguments.tokens)
    request = WriterRequest(INSTRUCTION, QUESTION, passages, max_tokens=2)
    read = passage_ids(model, passages)
    suffix = model.suffix_ids(f"{INSTRUCTION}\n\n{closing_text(request)}")
    ids = torch.tensor([[*model.prefix_ids, *(token for tokens in read for token in tokens), *suffix]])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "document.txt"
        path.write_text(subject.text_of(finder, 8192))
        with Library.open(Path(folder) / "home", finder) as library:
            library.jobs.run(library.documents.submit(path).id)
            loaded = loaded_writer(model, Path(folder))
            began = time.perf_counter()
            first_token(loaded, request, 0.0)  # reads and stores the passages
            reading = time.perf_counter() - began
            clock, processor = measured(
                library,
                {
                    "stored 0": lambda: first_token(loaded, request, 0.0),
                    "stored 0.1": lambda: first_token(loaded, request, 0.1),
                    "stored 0.2": lambda: first_token(loaded, request, 0.2),
                    "stored 0.3": lambda: first_token(loaded, request, 0.3),
                    "again": lambda: first_token(loaded, request, 1.0),
                    "generate": lambda: generate(twin, ids),
                },
                arguments.runs,
            )
    result = {
        **machine.described(arguments.threads),
        "writer": arguments.writer or f"random weights, shape of {arguments.shape}",
        "passage_tokens": [len(tokens) for tokens in read],
        "prefix_tokens": len(model.prefix_ids),
        "question_tokens": len(suffix),
        "seconds": clock,
        "processor_seconds": processor,
        "first_reading_and_storing": round(reading, 4),
        "times_faster": ratios(clock),
        "times_less_processor": ratios(processor),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
