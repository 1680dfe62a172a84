"""Properties of documents: from the file, by hand, and as conditions that narrow a search before it ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from retrieval.errors import InvalidRequest, NotFound, PermissionDenied
from retrieval.langchain import LandmarkRetriever
from retrieval.library import Library
from retrieval.types.records import FollowOptions, Scope
from storage.properties import Condition, condition, stated_properties
from storage.records import Principal
from tests import elsewhere
from tests.retrieval.conftest import SHARD_BYTES, add, ask, prose
from tests.retrieval.pdf_maker import Sheet, make_pdf


@pytest.fixture
def described(library, three):
    return with_properties(library, three)


@pytest.fixture(scope=elsewhere.shared("module"))
def only_read(model, filled_home, tmp_path_factory):
    home = tmp_path_factory.mktemp("described") / "home"
    shutil.copytree(filled_home, home)
    with Library.open(home, model, shard_bytes=SHARD_BYTES) as library:
        yield with_properties(library, {document.title: document.id for document in library.documents.list()})


def with_properties(library, three):
    library.documents.set_properties(
        three["fox"], {"author": ["Ann Lee", "Ben Ray"], "date": ["2023-05-01"], "Number": ["7"]}
    )
    library.documents.set_properties(
        three["whale"], {"author": ["Çelik"], "date": ["2024-11"], "tag": ["draft"], "number": ["10"]}
    )
    library.documents.set_properties(three["rain"], {"date": ["2024"], "checked": ["2024-03-05"]})
    return library


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (["author=ann lee"], "fox"),
        (["author=Ann Lee", "author=Ben Ray"], "fox"),
        (["author~LEE"], "fox"),
        (["author=ÇELIK"], "whale"),
        (["author!=Ann Lee"], "whale rain"),
        (["date>=2024"], "whale rain"),
        (["date<=2023"], "fox"),
        (["date=2024"], "whale rain"),
        (["date>2023-04"], "fox whale rain"),
        (["date>=2024-06", "tag=draft"], "whale"),
        (["number>8"], "whale"),
        (["number<=10"], "fox whale"),
        (["checked>=2024"], "rain"),
        (["tag!=draft"], "fox rain"),
        (["title~wha"], "whale"),
        (["kind=txt", "source~ra"], "rain"),
        (["pages>1"], ""),
        (["added>=2020"], "fox whale rain"),
        (["author=%"], ""),
        (["author~_"], ""),
    ],
)  # fmt: skip
def test_conditions_choose_documents(only_read, where, found):
    assert {one.title for one in only_read.documents.list(where=where)} == set(found.split())


@pytest.mark.parametrize("wrong", ["author", "=x", "author=", "1a=2", "pages>many", "a" * 70 + "=1"])
def test_what_is_no_condition_is_refused(only_read, wrong):
    with pytest.raises(InvalidRequest):
        only_read.documents.list(where=[wrong])
    with pytest.raises(InvalidRequest):
        only_read.search("fox", 3, within=Scope(where=(wrong,)))


def test_a_search_ranks_only_what_meets_the_conditions(described, three):
    found = described.search("The quick brown fox", 5, within=Scope(where=("date>=2024",)))
    assert len(found) == 5 and {one.document_id for one in found} <= {three["whale"], three["rain"]}
    assert described.search("fox", 5, within=Scope(where=("tag=none",))) == []
    both = Scope(document_ids=(three["fox"], three["whale"]), where=("author~e",))
    assert {one.document_id for one in described.search("the", 30, within=both)} == {three["fox"], three["whale"]}
    answer = ask(described, "What does the fox jump over?", within=Scope(where=("tag=draft",)))
    assert {one.document_id for one in (*answer.passages, *answer.near_misses)} <= {three["whale"]}


def test_a_search_among_some_is_that_of_a_library_with_only_these(described, three):
    alone = described.search("whales in the ocean", 6, within=Scope(document_ids=(three["whale"],)))
    assert described.search("whales in the ocean", 6, within=Scope(where=("tag=draft",))) == alone


def test_a_retriever_filters_by_conditions(described, three):
    retriever = LandmarkRetriever(library=described, k=3, filter={"where": ["date>=2024", "tag=draft"]})
    assert {one.metadata["document_id"] for one in retriever.invoke("fox")} == {three["whale"]}
    found = retriever.invoke("fox", filter={"where": "author=Ann Lee"})
    assert {one.metadata["document_id"] for one in found} == {three["fox"]}


def test_what_a_pdf_says_of_itself_is_there_and_can_be_taken_away(library, tmp_path):
    path = tmp_path / "report.pdf"
    path.write_bytes(
        make_pdf([Sheet([(60, 720, 11, "The dam was raised in 1981, and then again in 1999.")])], title="Dam")
    )
    document = add(library, path)
    library.documents.set_properties(document, {"author": ["Martha Lindqvist"]})
    assert library.documents.get(document).properties == {"author": ("Martha Lindqvist",)}
    library.view.catalogue.put_stated_properties(document, {"author": ["scanner"], "date": ["2020-01-02"]})
    assert library.documents.get(document).properties == {"author": ("Martha Lindqvist",), "date": ("2020-01-02",)}
    library.documents.set_properties(document, {"date": [], "author": []})
    library.view.catalogue.put_stated_properties(document, {"author": ["scanner"], "date": ["2020-01-02"]})
    assert library.documents.get(document).properties == {} and library.documents.list(where=["author~s"]) == []


def test_metadata_becomes_properties():
    metadata = {"author": "Ann Lee; Ben Ray", "creationdate": "D:20240131120000+01'00'", "keywords": "dam, lake,dam"}
    assert stated_properties(metadata | {"producer": "x", "title": "y"}) == {
        "author": ["Ann Lee", "Ben Ray"],
        "date": ["2024-01-31"],
        "keyword": ["dam", "lake"],
    }
    assert stated_properties({"creationdate": "yesterday", "author": "\0"}) == {}
    assert condition(" Author >= x ") == Condition("author", ">=", "x")


@pytest.mark.parametrize(
    "wrong", [{"date": ["31.1.2024"]}, {"pages": ["3"]}, {"": ["x"]}, {"a=b": ["x"]}, {"tag": ["x"] * 101}]
)
def test_what_cannot_be_set_is_refused_and_changes_nothing(described, three, wrong):
    before = described.documents.get(three["fox"]).properties
    with pytest.raises(InvalidRequest):
        described.documents.set_properties(three["fox"], {"author": ["New"], **wrong})
    assert described.documents.get(three["fox"]).properties == before


def test_nobody_sees_or_sets_what_is_said_of_other_peoples_documents(library, write):
    users = [library.accounts.create(name, "x") for name in ("ann", "ben")]
    ann, ben = (library.as_seen_by(Principal(user.id, user.name)) for user in users)
    secret = add(ann, write("secret.txt", prose(8, 300)))
    ann.documents.set_properties(secret, {"tag": ["codename"]})
    assert ben.documents.list(where=["tag=codename"]) == [] == ben.search("keeper", 3, within=Scope(where=("tag!=x",)))
    with pytest.raises(NotFound):
        ben.documents.set_properties(secret, {"tag": ["mine"]})
    shelf = ann.collections.create("Shelf")
    ann.documents.move(secret, shelf.id)
    ann.collections.share(shelf.id, people=["ben"])
    assert [one.properties for one in ben.documents.list(where=["tag=codename"])] == [{"tag": ("codename",)}]
    with pytest.raises(PermissionDenied):
        ben.documents.set_properties(secret, {"tag": ["mine"]})


def test_what_people_said_stays_when_the_file_changes_or_travels(described, three, tmp_path, open_library):
    described.bundles.export_to(tmp_path / "all.cairn")
    elsewhere = open_library(home=tmp_path / "elsewhere")
    list(elsewhere.bundles.import_from(tmp_path / "all.cairn"))
    for one in described.documents.list():
        (twin,) = (each for each in elsewhere.documents.list() if each.source == one.source)
        assert twin.properties == one.properties

    (folder := Path(tmp_path / "docs")).mkdir()
    (folder / "a.txt").write_text(prose(21, 200))
    followed = described.folders.follow(folder)

    def run() -> str:
        changes = described.folders.run(
            followed.id, read=lambda job: described.jobs.run(job.id), options=FollowOptions(settle_seconds=0.01)
        )
        return next(iter(changes)).document_id

    first = run()
    described.documents.set_properties(first, {"author": ["Ann"]})
    (folder / "a.txt").write_text(prose(22, 200))
    second = run()
    assert first != second and described.documents.get(second).properties == {"author": ("Ann",)}
