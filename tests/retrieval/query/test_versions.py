"""Documents that say the same are told apart by what they are called; else the later version comes first."""

from __future__ import annotations

import pytest

from retrieval.index.terms import asked_terms, described_name
from retrieval.query.versions import earlier_versions, name_shares, named_alike, version_of


@pytest.mark.parametrize(
    ("title", "source", "name"),
    [
        ("Offer", "offer staircase FINAL.docx", "offer staircase FINAL: Offer"),
        ("Annual report", "2024/annual-report.md", "2024: Annual report"),
        ("Kwame Boateng", "Kwame Boateng.txt", "Kwame Boateng"),
        ("Travel policy", "travel-policy-v1.2.txt", "travel policy version 1.2: Travel policy"),
        ("Price sheet", "price_sheet_Northam.md", "price sheet Northam: Price sheet"),
        ("Report of the survey", "survey.pdf", "Report of the survey"),
    ],
)
def test_a_document_is_called_by_its_file_and_folder_where_these_say_more_than_its_title(title, source, name):
    assert described_name(title, source) == name


@pytest.mark.parametrize(
    ("question", "names", "shares"),
    [
        ("Who headed the museum in 2025?", ["2024: Report", "2025: Report"], [0, 1]),
        ("What does the final offer cost?", ["offer DRAFT", "offer FINAL"], [0, 1]),
        ("What does heat cost in Northam?", ["price sheet Ilkstead", "price sheet Northam"], [0, 1]),
        ("What does the report say?", ["2024: Report", "2025: Report"], [0, 0]),
        ("Who signed?", ["one", "two"], [0, 0]),
        ("Who signed one?", ["one"], [0]),
    ],
)
def test_a_document_gains_by_the_words_that_tell_it_from_the_others(question, names, shares):
    assert name_shares(asked_terms(question), names).tolist() == shares


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("policy version 1.2", "policy version 2.0"),
        ("policy v1.9", "policy v1.10"),
        ("offer DRAFT", "offer FINAL"),
        ("lease of 12 May 2021", "amendment of 2 February 2026"),
        ("rules 2023", "rules 2024"),
        ("prices 2026-01-31", "prices 2026-02-01"),
        ("terms, 9 November 2023", "terms, 10 November 2023"),
    ],
)
def test_the_later_of_two_versions_is_known_by_its_number_stage_or_date(earlier, later):
    texts = ["It is reimbursed up to 95 euros.", "It is reimbursed up to 128 euros."]
    assert earlier_versions("How much is reimbursed?", [earlier, later], texts) == {1: [0]}
    assert earlier_versions("How much is reimbursed?", [later, earlier], texts) == {0: [1]}


@pytest.mark.parametrize(
    ("question", "names", "texts"),
    [
        ("How high in version 1.2?", ["policy v1.2", "policy v2.0"], ["It is 95.", "It is 128."]),
        ("How high in 2023?", ["rules 2023", "rules 2024"], ["It is 95.", "It is 128."]),
        ("How high?", ["policy", "rules"], ["It is 95.", "It is 128."]),
        ("How high?", ["rules 2023", "rules 2024"], ["The lift is out of order.", "It is 128."]),
        ("How high?", ["rules 2023", "rules 2024"], ["It is 95.", "It is 95."]),
        ("How high?", ["policy v1", "rules 2024"], ["It is 95.", "It is 128."]),
    ],
)
def test_nothing_is_later_where_the_question_the_names_or_the_sentences_do_not_say_so(question, names, texts):
    assert not earlier_versions(question, names, texts)


@pytest.mark.parametrize(
    ("printed", "typed"),
    [
        ("Jiří Dvořáček", "Jiri Dvoracek"),
        ("Małgorzata Wójcik", "Malgorzata Wojcik"),
        ("Siobha\u0301n", "Siobhán"),
        ("ＣＶ－４４２７", "CV-4427"),
        ("HX\u2011118\u2010C", "HX-118-C"),
        ("TM\u200b-350", "TM-350"),
        ("Heiz\u00adkosten", "Heizkosten"),
        ("oﬃce", "office"),
        ("driver’s", "driver's"),
        ("Łódź", "LODZ"),
    ],
)
def test_words_are_compared_in_one_form(printed, typed):
    assert asked_terms(printed) == asked_terms(typed)


def test_a_name_without_version_states_none():
    assert version_of("Report of the survey") == {}


def test_only_names_of_months_are_months():
    assert version_of("Rates of marine 2019")["date"] == (2019.0,)
    assert version_of("Rates of Mar 2019")["date"] == version_of("Rates of March 2019")["date"] == (2019.0, 3.0)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Travel policy, January 2024", "Travel policy, March 2026", True),
        ("policy version 1.2", "policy version 2.0", True),
        ("offer DRAFT", "offer FINAL", True),
        ("board Lime2 Rev L", "board Lime Rev I1", False),
        ("invoice Miller 2024", "invoice Lee 2025", False),
        ("Marine plan 2024", "Decimal plan 2026", False),
        ("plan Sept 2024", "plan Dec 2026", True),
    ],
)
def test_versions_of_one_document_are_called_the_same_but_for_version_stage_and_date(one, other, alike):
    assert named_alike(one, other) == alike
