"""Made rows that a code, a day or a number tells apart: the marked cell answers, and only one row is asked about."""

from research.train.data.questions.coded_rows import UNANSWERABLE, make_coded_rows

MANY = make_coded_rows(600, seed=1)


def test_at_most_one_row_answers_and_its_cell_is_marked() -> None:
    for each in MANY:
        marked = [text for text in each.texts if text.span]
        assert len(marked) <= 1
        for text in marked:
            assert text.span is not None
            start, stop = text.span
            assert "\n" not in text.text[start:stop] and text.text[start:stop].strip() == text.text[start:stop] != ""


def test_what_is_asked_for_stands_in_the_row_that_answers_or_above_it() -> None:
    """Of most questions the code, the day or the number; an ordinal is spelled out."""
    held = asked = 0
    for each in MANY:
        for text in each.texts:
            if text.span:
                row = text.text[text.text.rfind("\n", 0, text.span[0]) + 1 :].split("\n", 1)[0].lower()
                words = each.asked.lower().replace("?", "").replace(":", "").split()
                asked += 1
                held += any(any(letter.isdigit() for letter in word) and word in row for word in words) or any(
                    day in row for day in words if day.rstrip("s").endswith("day")
                )
    assert held > 0.6 * asked


def test_some_questions_have_no_row_and_some_have_a_look_alike() -> None:
    without = sum(not any(text.span for text in each.texts) for each in MANY) / len(MANY)
    assert UNANSWERABLE / 2 < without < 2 * UNANSWERABLE
    pairs = [[text.title for text in each.texts] for each in MANY if len(each.texts) > 1]
    assert len(pairs) > 100 and all(one != other for one, other in pairs)


def test_the_same_seed_makes_the_same_questions() -> None:
    assert make_coded_rows(20, seed=1) == MANY[:20] != make_coded_rows(20, seed=2)
