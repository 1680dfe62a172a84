"""What the default model is trained on: a tokenizer, and documents and questions as tokens."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.train.data.corpus import QuestionSet, overlap, read_questions, sample_texts
from research.train.data.examples import TokenDocuments, document_frequency, encode_questions, encode_texts
from research.train.data.tokenizer import load_tokenizer, train_tokenizer
from research.train.recipes.default_recipe import Recipe


@dataclass
class Prepared:
    """What training reads."""

    tokenizer: Any
    sample: list[str]
    """Beginnings of a few texts, for fitting norms."""
    questions: TokenDocuments
    held_out: TokenDocuments
    texts: list[NDArray[np.uint16]]
    text_titles: list[str]
    idf_V: NDArray[np.float32]


def prepare(data: Path, out: Path, recipe: Recipe, begin: Path | None = None) -> Prepared:
    """Tokenizer and tokens. The tokenizer comes from `begin`, or from `out/prepared` if an earlier run left it there;
    otherwise it is trained."""
    folder = out / "prepared"
    folder.mkdir(parents=True, exist_ok=True)
    questions = read_questions(data, "train")
    if begin is not None:
        load_tokenizer(begin).save_pretrained(folder)
    if not (folder / "tokenizer.json").exists():
        sample = [
            *(each.text for each in sample_texts(data, characters=recipe.tokenizer_characters)),
            *(text[:5000] for text in questions.texts[::3]),
            *(question.text for question in questions.questions[::2]),
        ]
        train_tokenizer(sample, vocab_size=recipe.vocab_size).save_pretrained(folder)
    tokenizer = load_tokenizer(folder)
    remove_overlap(questions, read_questions(data, "dev"), folder)
    texts = sample_texts(data, characters=recipe.text_characters, seed=1)
    encoded_texts = zip(texts, encode_texts(tokenizer, [each.text for each in texts]), strict=True)
    long_enough = [(ids, each.title) for each, (ids, _) in encoded_texts if len(ids) > 80]
    text_ids = [ids for ids, _ in long_enough]
    idf = document_frequency(text_ids[:4000], len(tokenizer), recipe.block_size - 1)
    encoded = encode_questions(tokenizer, questions, idf, longest_question=recipe.shape.longest_question)

    def part(held_out: bool) -> TokenDocuments:
        chosen = [each for each in encoded.questions if (each.document % recipe.held_out == 0) == held_out]
        return TokenDocuments(encoded.ids, encoded.titles, chosen)

    sample = [each.text[:400] for each in texts[: recipe.fitted_texts]]
    titles = [title for _, title in long_enough]
    return Prepared(tokenizer, sample, part(held_out=False), part(held_out=True), text_ids, titles, idf)


def remove_overlap(train: QuestionSet, dev: QuestionSet, folder: Path) -> None:
    """Take training questions that the development sets also hold out of `train`; their number goes to
    overlap.json."""
    found = overlap(dev, train)
    shared = set(found["pair"]) | set(found["passage"])
    (folder / "overlap.json").write_text(json.dumps({name: len(ids) for name, ids in found.items()}))
    train.questions = [question for question in train.questions if question.id not in shared]
