"""Blocks joined into passages, and passages cut where sentences are."""

from retrieval.query.passage_spans import Hit, join_neighbours, readable_span


def hits(*places: tuple[str, int, float]) -> list[Hit]:
    ranked = sorted(places, key=lambda place: -place[2])
    return [Hit(100 + ordinal, document, ordinal, score) for document, ordinal, score in ranked]


def ordinals(groups: list[list[Hit]]) -> list[list[int]]:
    return [[hit.ordinal for hit in group] for group in groups]


def test_neighbouring_blocks_become_one_passage_in_text_order_with_the_sum_of_their_scores():
    groups = join_neighbours(hits(("a", 5, 0.3), ("a", 4, 0.2), ("a", 9, 0.4), ("b", 6, 0.01)), 2)
    assert ordinals(groups) == [[4, 5], [9]]


def test_scores_that_do_not_add_up_rank_groups_by_their_best_block():
    found = hits(("a", 4, 0.5), ("b", 9, 0.6), ("a", 5, 0.4), ("c", 1, 0.3))
    assert ordinals(join_neighbours(found, 2)) == [[4, 5], [9]]
    assert ordinals(join_neighbours(found, 2, max)) == [[9], [4, 5]]


def test_blocks_of_different_documents_never_join():
    assert len(join_neighbours(hits(("a", 4, 0.3), ("b", 5, 0.2)), 2)) == 2


def test_exactly_as_many_passages_come_back_as_asked_for():
    found = hits(*(("a", ordinal, 1 / (1 + ordinal)) for ordinal in range(12)))
    for count in range(1, 13):
        assert len(join_neighbours(found, count)) == count


def test_with_fewer_blocks_than_passages_asked_for_each_block_stands_alone():
    assert ordinals(join_neighbours(hits(("a", 0, 0.5), ("a", 1, 0.3)), 8)) == [[0], [1]]


def test_a_block_between_two_passages_joins_them():
    assert ordinals(join_neighbours(hits(("a", 1, 0.5), ("a", 3, 0.4), ("a", 2, 0.3), ("b", 0, 0.01)), 2)) == [
        [1, 2, 3],
        [0],
    ]


def test_a_passage_starts_and_ends_at_sentence_borders_where_there_are_any():
    text = "First sentence here. The second one is longer than that! And a third? Last."
    start, end = readable_span(text, text.index("one is"), text.index("than"))
    assert text[start:end] == "The second one is longer than that!"


def test_a_span_that_is_a_sentence_already_is_left_alone():
    text = "First sentence here. The second one. And a third."
    start = text.index("The")
    assert readable_span(text, start, start + len("The second one.")) == (start, start + len("The second one."))


def test_without_sentences_a_passage_ends_at_words():
    text = "word " * 400
    start, end = readable_span(text, 1002, 1203)
    assert text[start:end].startswith("word") and text[start:end].endswith("word")
    assert start > 1002 - 200 and end < 1203 + 200


def test_a_blank_line_ends_a_passage():
    text = "Heading\n\nBody of the paragraph without a full stop\n\nNext paragraph"
    start, end = readable_span(text, text.index("of"), text.index("paragraph"))
    assert text[start:end].strip() == "Body of the paragraph without a full stop"


def test_the_span_of_a_whole_text_is_the_text():
    text = "  All of it."
    assert readable_span(text, 0, len(text)) == (2, len(text)) or readable_span(text, 0, len(text)) == (0, len(text))
