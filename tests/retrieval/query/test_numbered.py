"""Parts that a question names: by their number, or as an option."""

from __future__ import annotations

import pytest

from retrieval.query.numbered import in_numbered, named_parts
from tests.tiny_model import shipped_model

AGREEMENT = """Service agreement

§ 12 Hounds are kept on a lead.
(4) Cats are not.

2 Duties

2.1 Inspection

Every six weeks.

2.3 Records

Each visit is entered.

It is kept for eight years.

3 Payment

Within 21 days. Rule 7 does not hold.

Rule 7. Quiet is kept.
Rule 8. Fuel is stored.
"""


@pytest.mark.parametrize(
    ("question", "there"),
    [
        ("What is laid down in section 2.3?", ["2.3", "Each visit", "It is kept"]),
        ("what does sec 2.1 say", ["2.1", "Every six"]),
        ("What does chapter 2 say?", ["2 D", "2.1", "Every six", "2.3", "Each visit", "It is kept"]),
        ("What does rule 8 prescribe?", ["Rule 8", "Fuel"]),
        ("What does Rule 7 say?", ["Rule 7. ", "Quiet"]),
        ("Was steht in § 12?", ["§ 12 Hounds"]),
        ("Was steht in Absatz 4?", ["(4) Cats"]),
        ("What does section 2.4 say?", []),
        ("What happened on May 3?", []),
        ("How much is due within 21 days?", []),
        ("What was decided in 2026?", []),
    ],
)
def test_a_sentence_stands_under_the_number_above_it_whatever_says_what_that_numbers(question, there):
    starts = [AGREEMENT.index(each) for each in ("2 D", "2.1", "Every six", "2.3", "Each visit", "It is kept", "3 P")]
    starts += [AGREEMENT.index(each) for each in ("Within", "Rule 7. ", "Quiet", "Rule 8", "Fuel", "§ 12", "(4)")]
    found = in_numbered(question, {"d": AGREEMENT}, ["d"] * len(starts), starts)
    assert [start for start, inside in zip(starts, found, strict=True) if inside] == [*map(AGREEMENT.index, there)]


def test_numbers_with_units_dates_and_codes_name_no_part():
    assert named_parts("Is 2.5 kg in section 12 or rule 3.1.2?") == {("section", "12"), ("rule", "3.1.2")}
    assert not named_parts("Is VK-2040 from 2026-03-12 worth 1,200 or 3.50?")


@pytest.fixture
def contracts(open_library, tmp_path):
    """Two contracts of sixty sections with the same numbers, each with a list of contents; no two sections say the
    same."""
    library = open_library(model=shipped_model())
    for town in ("Bergen", "Skagen"):
        heads = [f"{number}.{part} Goods of {town} {number} {part}" for number in range(1, 7) for part in range(1, 11)]
        body = "\n\n".join(
            f"{head}\n\nThe goods of this part are carried by ship, kept dry and counted {at} times in the port. "
            "They are insured by whoever sends them, and whoever receives them looks at them within a week."
            for at, head in enumerate(heads, 1)
        )
        (tmp_path / f"{town}.txt").write_text(f"Contract of {town}\n\n" + "\n".join(heads) + f"\n\n{body}")
        library.jobs.run(library.documents.submit(tmp_path / f"{town}.txt").id)
    return library


def test_a_part_named_by_its_number_is_found_whatever_it_is_about(contracts):
    for town, number, times in (("Bergen", "3.7", 27), ("Skagen", "5.10", 50), ("Skagen", "1.1", 1)):
        (first, *_) = contracts.search(f"What does section {number} of the {town} contract say?", k=4)
        assert first.source == f"{town}.txt" and f"counted {times} times" in first.text


MANUAL = """rsync(1)

OPTIONS
  -p, --perms
      Permissions are kept, unlike with -P.

  -P     the same as --partial --progress

  --partial
      Of what was sent in part is kept
      - the beginning
      - nothing else.
      A file that was sent in part is kept.

  -a, --archive  This keeps nearly everything.
"""


@pytest.mark.parametrize(
    ("question", "begins"),
    [
        ("What does -p do?", "  -p, --perms"),
        ("What does the option -P do?", "  -P     the"),
        ("rsync --partial", "  --partial\n"),
        ("Was macht --archive?", "  -a, --archive"),
        ("What does -x do?", None),
    ],
)
def test_an_option_is_explained_from_its_line_to_the_next_option_in_its_own_case(question, begins):
    heads = ["  -p, --perms", "  -P     the", "  --partial\n", "  -a, --archive"]
    starts = [MANUAL.index(head) for head in heads] + [MANUAL.index("Permissions"), MANUAL.index("A file")]
    belongs = [*heads, heads[0], heads[2]]
    found = in_numbered(question, {"d": MANUAL}, ["d"] * len(starts), starts)
    assert found == [of == begins for of in belongs]


def test_a_text_without_options_explains_none():
    assert in_numbered("What does -x do?", {"d": AGREEMENT, "e": ""}, ["d", "e"], [0, 0]) == [False, False]


def test_an_option_is_looked_for_in_the_manual_that_is_named(open_library, tmp_path):
    library = open_library(model=shipped_model())
    for name, does in (("tarry", "waits for the moon"), ("marry", "asks the parson")):
        options = "\n\n".join(f"  -{letter}     {does} {at} times" for at, letter in enumerate("abcdPpqrst", 2))
        (tmp_path / f"{name}.txt").write_text(f"{name}(1)\n\nOPTIONS\n\n{options}\n")
        library.jobs.run(library.documents.submit(tmp_path / f"{name}.txt").id)
    for name, option, said in (("marry", "-P", "asks the parson 6"), ("tarry", "-p", "waits for the moon 7")):
        assert said in list(library.ask(f"What does {option} do in {name}?"))[-1].text
