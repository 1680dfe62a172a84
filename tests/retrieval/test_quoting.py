"""Which sentence is quoted, and that it stands whole in the blocks."""

import torch

from retrieval.quoting import Quoting, token_queries, with_neighbours
from storage.records import Block
from tests.tiny_model import tiny_model

TEXT = (
    "A heading line\nThe cairn was built by surveyors of the line. Nobody knows who piled the first stones there. "
    "Does anybody remember the old road? The last storm took away the upper half of it."
)


class Keys:
    """A reader that gives every token the key that a table names, the same in all heads."""

    def __init__(self, model, blocks, vector_of):
        self.layers, self.num_blocks = model.memory_layers, len(blocks)
        size = (1, model.num_kv_heads, 1, len(blocks), model.config.block_size, model.head_dim)
        self._keys = torch.zeros(size)
        for index, block in enumerate(blocks):
            for row, token in enumerate(block.tokens):
                self._keys[0, :, 0, index, row] = vector_of(token)

    def read(self, layer, ids_BGXS):
        return self._keys, self._keys, torch.zeros(1)


def blocks_of(model, text, document_id="d"):
    ids = model.tokenize(text).ids
    per_block = model.config.tokens_per_block
    return [
        Block(
            id=ordinal + 1,
            document_id=document_id,
            ordinal=ordinal,
            start=ordinal * per_block,
            end=min(len(ids), (ordinal + 1) * per_block),
            shard_id=1,
            shard="s",
            index_in_shard=ordinal,
            boxes=(),
            tokens=tuple(ids[ordinal * per_block : (ordinal + 1) * per_block]),
        )
        for ordinal in range(-(-len(ids) // per_block))
    ]


def spell(quoting, blocks, places):
    return "".join(TEXT[start:end] for _, start, end in (quoting.place(*place) for place in places))


def sentences(quoting):
    return [TEXT[quoting.place(*p[0])[1] : quoting.place(*p[-1])[2]] for p in quoting._sentences({"d": TEXT})]


def test_whole_sentences_with_enough_words_that_are_no_questions_are_candidates() -> None:
    model = tiny_model(block_size=16)
    assert sentences(Quoting(model, blocks_of(model, TEXT))) == [
        "The cairn was built by surveyors of the line.",
        "Nobody knows who piled the first stones there.",
        "The last storm took away the upper half of it.",
    ]


def test_a_sentence_that_is_not_whole_in_the_candidates_is_not_quoted() -> None:
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, TEXT)
    missing = [block if block.ordinal != 2 else None for block in blocks]  # inside the first sentence
    assert sentences(Quoting(model, missing))[0] == "Nobody knows who piled the first stones there."


def test_the_sentence_that_holds_the_best_match_of_every_question_token_wins() -> None:
    model = tiny_model(block_size=16)
    blocks = blocks_of(model, TEXT)
    table = torch.randn(300, model.head_dim, generator=torch.Generator().manual_seed(0))
    quoting = Quoting(model, blocks)
    for wanted in ("surveyors", "piled", "storm"):
        ids = model.tokenize(wanted).ids
        queries = table[ids][:, None, None].expand(-1, len(model.memory_layers), model.num_kv_heads, -1)
        # Tokens are bytes here: single letters stand everywhere, so a key is that of the byte and the one before it.
        pairs = [[0, *block.tokens] for block in blocks]
        keys = Keys(model, blocks, lambda token: table[token])
        for index, tokens in enumerate(pairs):
            for row in range(1, len(tokens)):
                inside = wanted in TEXT[max(0, blocks[index].start + row - len(wanted)) : blocks[index].start + row]
                keys._keys[0, :, 0, index, row - 1] *= 1.0 if inside else -1.0
        places = quoting.best_sentence(keys, queries, {"d": TEXT})  # type: ignore[arg-type]
        assert wanted in spell(quoting, blocks, places)


def test_queries_of_the_tokens_average_to_the_query_of_search() -> None:
    from retrieval.search import search_query

    model = tiny_model()
    torch.testing.assert_close(token_queries(model, "Who built it?").mean(0), search_query(model, "Who built it?"))


def test_neighbours_are_added_only_inside_a_document() -> None:
    document_N, ordinal_N = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 2, 0, 1])
    assert with_neighbours(torch.tensor([2]), document_N, ordinal_N).tolist() == [1, 2]
    assert with_neighbours(torch.tensor([3, 0]), document_N, ordinal_N).tolist() == [0, 1, 3, 4]
