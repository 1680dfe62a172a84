"""Several people at one library: each sees, searches and asks what is theirs or shared with them, and nothing else."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.errors import CairnError, InvalidRequest, NotFound, PermissionDenied
from retrieval.index.blocks import MemorySnapshot
from retrieval.library import Library
from retrieval.types.records import Scope
from storage.records import Principal
from tests.retrieval.conftest import FOX, WHALE, OpenLibrary, add, ask, prose, substance

pytestmark = pytest.mark.both_catalogues

PEOPLE = 8
QUESTION = "What does the keeper do near the bridge?"


@dataclass
class Person:
    library: Library
    document_id: str


def principal_of(library: Library, name: str) -> Principal:
    return Principal(library.accounts.get(name).id, name)


@pytest.fixture(scope="session")
def people_home(tmp_path_factory: pytest.TempPathFactory, model: LandmarkModel) -> Path:
    """The home of eight people with a private document each, of much the same words; to be copied."""
    folder = tmp_path_factory.mktemp("people")
    with Library.open(folder / "home", model, shard_bytes=20_000) as library:
        for number in range(PEOPLE):
            library.accounts.create(f"user{number}", "hash")
            path = folder / f"private-{number}.txt"
            path.write_text(prose(50 + number, 600))
            add(library.as_seen_by(principal_of(library, f"user{number}")), path)
    return folder / "home"


@pytest.fixture
def library(request: pytest.FixtureRequest, tmp_path: Path, open_library: OpenLibrary) -> Library:
    """Empty, unless the test asks for `people` as well."""
    if "people" in request.fixturenames:
        shutil.copytree(request.getfixturevalue("people_home"), tmp_path / "home")
    return open_library()


@pytest.fixture
def people(people_home: Path, library: Library) -> list[Person]:
    """`people_home` is asked for here too, so that it is made before a test's libraries go elsewhere."""
    seen = [library.as_seen_by(principal_of(library, f"user{number}")) for number in range(PEOPLE)]
    return [Person(each, each.documents.list()[0].id) for each in seen]


def evidence(answer) -> set[str]:
    return {passage.document_id for passage in (*answer.passages, *answer.near_misses)}


def everything(library: Library, question: str = QUESTION) -> tuple:
    found = library.search(question, 4)
    return [passage.to_dict() for passage in found], substance(ask(library, question))


def test_eight_people_at_once_get_the_answers_that_each_gets_alone_from_their_own_documents(people):
    alone = [everything(person.library) for person in people]
    for person, (passages, answer) in zip(people, alone, strict=True):
        assert {passage["document_id"] for passage in passages} == {person.document_id}
        assert {p["document_id"] for p in (*answer["passages"], *answer["near_misses"])} == {person.document_id}
    barrier = threading.Barrier(PEOPLE)

    def together(person: Person) -> tuple:
        barrier.wait()
        return everything(person.library)

    with ThreadPoolExecutor(PEOPLE) as pool:
        assert list(pool.map(together, people)) == alone


def test_an_answer_is_the_very_one_that_a_library_without_the_others_would_give(people, open_library, write, tmp_path):
    """Scores, confidence and candidates too: no other person's block enters any number."""
    person = people[3]
    alone = open_library(home=tmp_path / "alone")
    add(alone, write("private-3.txt", prose(53, 600)))
    shown, answer = everything(person.library)
    expected_shown, expected = everything(alone)
    for passage, other in zip(shown, expected_shown, strict=True):
        assert (passage["text"], passage["score"]) == (other["text"], pytest.approx(other["score"], rel=1e-5))
    assert answer["text"] == expected["text"] and answer["found"] == expected["found"]
    assert answer["confidence"] == pytest.approx(expected["confidence"], rel=1e-4)
    assert answer["memory_share"] == pytest.approx(expected["memory_share"], rel=1e-5)
    assert len(answer["settings"]["candidates"]) == len(expected["settings"]["candidates"])


def test_eight_people_with_one_shared_collection_get_the_same_from_it(people, library, write):
    owner = people[0].library
    collection = owner.collections.create("Shared")
    shared_id = add(owner, write("shared.txt", FOX), collection="Shared")
    owner.collections.share(collection.id, everyone=True)

    def asked(person: Person) -> dict:
        return substance(ask(person.library, QUESTION, within=Scope((), (collection.id,))))

    alone = [asked(person) for person in people]
    with ThreadPoolExecutor(PEOPLE) as pool:
        assert list(pool.map(asked, people)) == alone
    for answer in alone:  # confidence compares with all that one sees, which differs
        assert {**answer, "confidence": 0.0} == {**alone[0], "confidence": 0.0}
    for person in people:
        assert {one.id for one in person.library.documents.list()} == {person.document_id, shared_id}
        assert evidence(ask(person.library, QUESTION)) <= {person.document_id, shared_id}


def test_what_is_shared_can_be_read_and_not_changed_and_goes_when_it_is_no_longer_shared(people, write):
    owner, reader, other = (person.library for person in people[:3])
    collection = owner.collections.create("Reports")
    shared_id = add(owner, write("shared.txt", WHALE), collection="Reports")
    owner.collections.share(collection.id, people=["user1"])
    (seen,) = reader.collections.list()
    assert (seen.name, seen.owner, seen.mine, seen.shared_with) == ("Reports", "user0", False, ())
    assert owner.collections.list()[0].shared_with == ("user1",) and other.collections.list() == []
    document = reader.documents.get(shared_id)
    assert (document.owner, document.mine) == ("user0", False)
    answer = ask(reader, "Do whales sing?", within=Scope((shared_id,)))
    assert evidence(answer) == {shared_id} and reader.answers.get(answer.id) == answer

    for change in (
        lambda: reader.documents.rename(shared_id, "Mine"),
        lambda: reader.documents.move(shared_id, None),
        lambda: reader.documents.delete([shared_id]),
        lambda: reader.collections.rename(collection.id, "Mine"),
        lambda: reader.collections.share(collection.id, everyone=True),
        lambda: reader.collections.delete(collection.id),
        lambda: reader.documents.move(people[1].document_id, collection.id),
    ):
        with pytest.raises(PermissionDenied):
            change()

    owner.collections.share(collection.id)
    with pytest.raises(NotFound):
        reader.documents.get(shared_id)
    with pytest.raises(NotFound):
        reader.answers.get(answer.id)
    assert shared_id not in {passage.document_id for passage in reader.search("whales", 20)}
    assert answer.id not in {head.id for head in reader.answers.list()}
    assert owner.documents.delete([shared_id]).answers == 0, "nobody learns how often others asked"


def test_whatever_is_somebody_elses_is_not_found(people):
    mine, theirs = people[0], people[1].library
    collection = mine.library.collections.create("Private")
    job = mine.library.jobs.list()[0]
    answer = ask(mine.library, QUESTION, conversation_id="c" * 32)
    for look in (
        lambda: theirs.documents.get(mine.document_id),
        lambda: theirs.documents.rename(mine.document_id, "x"),
        lambda: theirs.documents.move(mine.document_id, None),
        lambda: theirs.documents.move(people[1].document_id, collection.id),
        lambda: theirs.documents.page_text(mine.document_id, 1),
        lambda: theirs.documents.page_image(mine.document_id, 1),
        lambda: theirs.documents.original(mine.document_id),
        lambda: theirs.collections.rename(collection.id, "x"),
        lambda: theirs.collections.share(collection.id, everyone=True),
        lambda: theirs.collections.delete(collection.id),
        lambda: theirs.jobs.get(job.id),
        lambda: theirs.jobs.run(job.id),
        lambda: theirs.jobs.cancel(job.id),
        lambda: theirs.jobs.retry(job.id),
        lambda: theirs.answers.get(answer.id),
        lambda: theirs.answers.delete(answer.id),
        lambda: theirs.answers.effect_of_block(answer.id, answer.passages[0].block_ids[0]),
        lambda: theirs.answers.list(conversation_id="c" * 32),
        lambda: theirs.search("x", 3, within=Scope((mine.document_id,))),
        lambda: theirs.search("x", 3, within=Scope((), (collection.id,))),
        lambda: ask(theirs, "x", within=Scope((mine.document_id,))),
        lambda: ask(theirs, "And then?", conversation_id="c" * 32),
    ):
        with pytest.raises(NotFound):
            look()
    assert theirs.documents.delete([mine.document_id]).documents == 0
    assert mine.library.documents.get(mine.document_id).state == "ready"
    assert theirs.answers.list() == [] and len(theirs.jobs.list()) == 1 and len(theirs.documents.list()) == 1


def test_the_same_file_of_two_people_is_two_documents_and_neither_learns_of_the_other(people, write):
    path = write("same.txt", FOX)
    first, second = people[0].library, people[1].library
    one = add(first, path)
    assert first.documents.estimate(path).already_stored and not second.documents.estimate(path).already_stored
    job = second.documents.submit(path)
    assert job.note != "already stored" and job.document_id != one
    assert second.jobs.run(job.id).state == "done"
    assert second.documents.submit(path).note == "already stored"
    first.documents.delete([one])
    assert {p.document_id for p in second.search("fox", 3, within=Scope((job.document_id,)))} == {job.document_id}


def test_what_concerns_the_whole_library_is_the_administrators(people, library):
    user = people[0].library
    for act in (
        user.maintenance.verify,
        user.maintenance.repair,
        user.maintenance.gc,
        user.jobs.run_next,
        lambda: user.accounts,
        user.close,
    ):
        with pytest.raises(PermissionDenied):
            act()
    report = user.maintenance.doctor()
    assert report["memory"]["num_documents"] == 1 and "home" not in report
    assert library.maintenance.doctor()["memory"]["num_documents"] == PEOPLE
    assert "private-1" not in str(report)


@pytest.mark.files_only
def test_a_damaged_document_of_another_is_not_named(people, library, tmp_path: Path):
    home = tmp_path / "home"
    for path in (home / "kv" / people[1].document_id).glob("*.kv"):
        path.write_bytes(b"damaged")
    with pytest.raises(CairnError) as caught:
        people[0].library.search("fox", 3)
    assert "private-1" not in str(caught.value) and "repair" in str(caught.value)


def test_documents_from_before_there_were_accounts_are_everybodys_to_read(library, write):
    old = add(library, write("old.txt", FOX))
    asked = ask(library, QUESTION)
    library.accounts.create("ann", "hash")
    ann = library.as_seen_by(principal_of(library, "ann"))
    assert [one.id for one in ann.documents.list()] == [old] and not ann.documents.list()[0].mine
    assert ann.answers.list() == []
    with pytest.raises(PermissionDenied):
        ann.documents.delete([old])
    assert library.accounts.transfer_ownership(library.accounts.get("ann")) == 1
    assert ann.documents.list()[0].mine and [head.id for head in ann.answers.list()] == [asked.id]


def test_an_account_is_removed_with_its_documents_or_after_they_are_given_away(people, library):
    accounts = library.accounts
    with pytest.raises(InvalidRequest, match="--give-to"):
        accounts.delete(accounts.get("user0"))
    accounts.transfer_ownership(accounts.get("user1"), accounts.get("user0"))
    accounts.delete(accounts.get("user0"))
    assert people[0].document_id in {one.id for one in people[1].library.documents.list()}
    accounts.delete(accounts.get("user1"), library.documents.delete)
    assert (
        len(library.documents.list()) == PEOPLE - 2
        and library.maintenance.verify().ok
        and not library.maintenance.verify().orphans
    )
    with pytest.raises(InvalidRequest, match="cannot be a user's name"):
        accounts.create("no spaces", "hash")
    with pytest.raises(InvalidRequest, match="already"):
        accounts.create("USER2", "hash")


def test_an_empty_view_finds_nothing_and_says_so(people, library):
    library.accounts.create("new", "hash")
    new = library.as_seen_by(principal_of(library, "new"))
    assert new.search(QUESTION, 5) == []
    answer = ask(new, QUESTION)
    assert evidence(answer) == set() and answer.settings["candidates"] == []


def test_a_restricted_snapshot_restricts_every_field():
    """A new field of the snapshot must be considered in `MemorySnapshot.restricted_to`."""
    known = {"landmarks", "blocks", "document_ids", "document_N", "ordinal_N", "cache", "vectors"}
    assert {field.name for field in fields(MemorySnapshot)} == known
