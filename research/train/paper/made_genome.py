"""A made set in the manner of DNA: genomes whose genes come again, as families of repeats do, with mutations.

- A token is a codon, three of the letters A, C, G and T.
- Every genome has genes of its own, drawn once. It is copies of them in any order, each with some codons mutated,
  between stretches that never come again. Nothing but an earlier copy tells how a gene goes on.
- Made by these rules and not measured from any organism: what it says of real genomes is nothing. It may be had
  anywhere, and the same seed gives the same genomes.

Axes: N codons of a genome.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
from transformers import PreTrainedTokenizerFast

from research.train.paper.made_words import word_tokenizer

CODONS = tuple("".join(letters) for letters in product("ACGT", repeat=3))
GENES, GENE_CODONS, MUTATED = 4, 32, 0.05
SPACER = (2, 10)
"""Fewest and most codons between genes."""
GENOME = 512
"""Codons of a genome to train on: few, so that there are too many genomes to learn by heart."""


def made_genomes(genomes: int, seed: int, *, codons: int = GENOME) -> Iterator[str]:
    """Texts of one genome each: codons between blanks."""
    random = np.random.default_rng(seed)
    for _ in range(genomes):
        genes = random.integers(0, len(CODONS), (GENES, GENE_CODONS))
        pieces, count = [], 0
        while count < codons:
            copy = genes[random.integers(0, GENES)].copy()
            mutated = random.random(GENE_CODONS) < MUTATED
            copy[mutated] = random.integers(0, len(CODONS), int(mutated.sum()))
            spacer = random.integers(0, len(CODONS), random.integers(SPACER[0], SPACER[1] + 1))
            pieces += [copy, spacer]
            count += len(copy) + len(spacer)
        yield " ".join(CODONS[codon] for codon in np.concatenate(pieces)[:codons].tolist())


def genome_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each codon, and an end of text."""
    return word_tokenizer(CODONS)
