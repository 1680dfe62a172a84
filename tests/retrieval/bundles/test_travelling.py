"""Libraries that travel in a file: the same answers elsewhere without reading, and nothing from a wrong file."""

from __future__ import annotations

import hashlib
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retrieval.bundles import exporting
from retrieval.errors import ForeignBundle, InvalidRequest
from retrieval.ingest import shard_writer
from retrieval.library import Library
from retrieval.types.records import FolderReport, FollowOptions
from storage.bundle import MANIFEST, BadBundle
from storage.errors import NotFound as NoRow
from storage.records import Principal
from tests.retrieval.conftest import SHARD_BYTES, OpenLibrary, add, ask, prose
from tests.tiny_model import tiny_model

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")  # of files left open
QUESTIONS = ("What does the fox jump over?", "Do whales sing?", "Where does the rain fall?")


@pytest.fixture
def bundle(library: Library, three: dict[str, str], tmp_path: Path) -> Path:
    shelf = library.collections.create("Animals")
    library.documents.move(three["fox"], shelf.id)
    assert library.bundles.export_to(tmp_path / "all.cairn").documents == 3
    return tmp_path / "all.cairn"


@pytest.fixture
def elsewhere(open_library: OpenLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    """An empty library of the same model, which must not read anything."""
    monkeypatch.setattr(shard_writer, "prefill", lambda *a, **k: pytest.fail("the model was asked to read"))
    return open_library(home=tmp_path / "elsewhere")


def words(library: Library) -> list[Any]:
    """What must be the same everywhere: answers, and passages with their scores."""
    found = []
    for question in QUESTIONS:
        answer = ask(library, question)
        passages = [(one.source, one.start_index, one.text, one.score) for one in library.search(question, 5)]
        found.append((answer.text, [(one.source, one.text) for one in answer.passages], passages))
    return found


def stored(library: Library) -> tuple[int, int]:
    home = library.view.workspace.home
    return len(library.documents.list()), sum(path.is_file() for path in [*home.glob("kv/**/*"), *home.glob("files/*")])


def test_a_library_answers_elsewhere_as_it_did_without_being_read_again(library, bundle, elsewhere):
    before = words(library)
    arrived = list(elsewhere.bundles.import_from(bundle))
    assert {(one.source, one.status) for one in arrived} == {
        (f"{name}.txt", "imported") for name in ("fox", "whale", "rain")
    }
    assert words(elsewhere) == before
    assert elsewhere.maintenance.verify().ok and not elsewhere.maintenance.verify().orphans
    assert [(one.name, one.documents) for one in elsewhere.collections.list()] == [("Animals", 1)]
    for one in elsewhere.documents.list():
        twin = next(each for each in library.documents.list() if each.source == one.source)
        assert one.id != twin.id and (one.blocks, one.tokens, one.title) == (twin.blocks, twin.tokens, twin.title)
        assert elsewhere.documents.original(one.id).read_bytes() == library.documents.original(twin.id).read_bytes()
        assert elsewhere.documents.page_text(one.id, 1).text == library.documents.page_text(twin.id, 1).text


def test_what_is_stored_already_is_recognised_by_its_content(library, bundle, elsewhere):
    list(elsewhere.bundles.import_from(bundle))
    size = stored(elsewhere)
    assert {one.status for one in elsewhere.bundles.import_from(bundle)} == {"already stored"}
    assert {one.status for one in library.bundles.import_from(bundle)} == {"already stored"}
    assert stored(elsewhere) == size and elsewhere.maintenance.verify().ok


def test_one_collection_travels_alone_and_everything_may_arrive_in_another(library, bundle, elsewhere, tmp_path):
    (shelf,) = library.collections.list()
    library.bundles.export_to(tmp_path / "one.cairn", collection_id=shelf.id)
    (arrived,) = elsewhere.bundles.import_from(tmp_path / "one.cairn", collection="From Ann")
    assert arrived.source == "fox.txt"
    assert [one.name for one in elsewhere.collections.list()] == ["From Ann"]


@pytest.mark.files_only
def test_a_catalogue_that_is_lost_after_an_import_can_be_rescued(bundle, elsewhere):
    list(elsewhere.bundles.import_from(bundle))
    assert len(list((elsewhere.view.workspace.home / "sidecars").iterdir())) == 3


def test_a_name_of_which_nothing_can_be_kept_is_refused_or_is_none(bundle, elsewhere):
    with pytest.raises(InvalidRequest, match="needs a name"):
        list(elsewhere.bundles.import_from(bundle, collection="\u202e"))
    assert stored(elsewhere) == (0, 0)
    hostile = rewritten(bundle, rows(collection="\u202e\0", source="\u202egnp.exe\0", title="\x1b[2J"))
    (*_,) = elsewhere.bundles.import_from(hostile)
    assert "gnp.exe" in {one.source for one in elsewhere.documents.list()} and len(elsewhere.documents.list()) == 3
    assert {one.name for one in elsewhere.collections.list()} <= {"Animals"}


def test_memory_of_another_model_is_refused_and_its_originals_can_be_read(bundle, tmp_path):
    other = tiny_model(seed=5, block_size=16, window_blocks=4, context_blocks=2)
    with Library.open(tmp_path / "other", other, shard_bytes=SHARD_BYTES) as library:
        with pytest.raises(ForeignBundle, match="--reingest"):
            list(library.bundles.import_from(bundle))
        assert stored(library) == (0, 0)
        assert {one.status for one in library.bundles.import_from(bundle, reingest=True)} == {"read again"}
        assert {one.source for one in library.documents.list()} == {"fox.txt", "whale.txt", "rain.txt"}
        assert library.maintenance.verify().ok


def test_a_user_exports_and_imports_what_is_theirs(open_library, tmp_path, write):
    library = open_library()
    users = [library.accounts.create(name, "x") for name in ("ann", "ben")]
    ann, ben = (library.as_seen_by(Principal(user.id, user.name)) for user in users)
    add(ann, write("ann.txt", prose(8, 300)))
    assert ann.bundles.export_to(tmp_path / "ann.cairn").documents == 1
    with pytest.raises(InvalidRequest, match="no document"):
        ben.bundles.export_to(tmp_path / "ben.cairn")
    (arrived,) = ben.bundles.import_from(tmp_path / "ann.cairn")
    assert (arrived.status, ben.documents.get(arrived.document_id).owner) == ("imported", "ben")
    assert len(ann.documents.list()) == len(ben.documents.list()) == 1


def test_what_is_deleted_while_it_is_exported_is_not_counted(library, three, tmp_path, monkeypatch):
    def deleted(catalogue, document, *rest):
        if document.id == three["fox"]:
            raise NoRow("document", document.id)
        return rows_of(catalogue, document, *rest)

    rows_of = exporting._rows
    monkeypatch.setattr(exporting, "_rows", deleted)
    exported = library.bundles.export_to(tmp_path / "two.cairn")
    stays = [one for one in library.documents.list() if one.id != three["fox"]]
    assert (exported.documents, exported.blocks) == (2, sum(one.blocks for one in stays))
    assert [source for source, _ in exported.left_out] == [library.documents.get(three["fox"]).source]


@pytest.mark.files_only
def test_an_existing_file_is_not_overwritten_and_a_failed_export_leaves_none(library, bundle, tmp_path):
    with pytest.raises(InvalidRequest, match="exists already"):
        library.bundles.export_to(bundle)
    shard = next((tmp_path / "home" / "kv").glob("*/*.kv"))
    damaged = bytearray(shard.read_bytes())
    damaged[-1] ^= 1
    shard.write_bytes(damaged)
    with pytest.raises(Exception, match="damaged"):
        library.bundles.export_to(tmp_path / "second.cairn")
    assert not list(tmp_path.glob("second*"))


def test_a_removed_file_of_a_followed_folder_comes_back_from_the_trash(library, tmp_path):
    (folder := tmp_path / "docs").mkdir()
    (folder / "a.txt").write_text(prose(3, 200))
    (folder / "b.txt").write_text(prose(4, 200))
    followed = library.folders.follow(folder, removed="trash")

    def run() -> FolderReport:
        return list(
            library.folders.run(
                followed.id, read=lambda job: library.jobs.run(job.id), options=FollowOptions(settle_seconds=0.01)
            )
        )[-1]

    run()
    (folder / "a.txt").unlink()
    assert run().counts["removed"] == 1 and [one.source for one in library.documents.list()] == ["b.txt"]
    (kept,) = (tmp_path / "home" / "trash").glob("*/a.txt.cairn")
    (arrived,) = library.bundles.import_from(kept)
    assert (arrived.source, arrived.status) == ("a.txt", "imported")


# What is wrong with a file


def rewritten(path: Path, change: Callable[[dict[str, bytes]], None], *, honest: bool = True) -> Path:
    """The bundle with other members; `honest`: its manifest says so."""
    with zipfile.ZipFile(path) as old:
        members = {info.filename: old.read(info) for info in old.infolist()}
    manifest = json.loads(members.pop(MANIFEST))
    change(members)
    if honest:
        manifest["members"] = {
            name: {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()} for name, body in members.items()
        }
    new = path.with_name("hostile.cairn")
    with zipfile.ZipFile(new, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
        archive.writestr(MANIFEST, json.dumps(manifest))
    return new


def rows(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        found = json.loads(members["documents/1/rows.json"])
        for name, value in changes.items():
            found[name] = value(found[name]) if callable(value) else value
        members["documents/1/rows.json"] = json.dumps(found).encode()

    return change


def flipped(name: str, at: int) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        body = bytearray(members[name])
        body[at] ^= 0x40
        members[name] = bytes(body)

    return change


def swapped(members: dict[str, bytes]) -> None:
    members["documents/0/0.kv"], members["documents/0/1.kv"] = members["documents/0/1.kv"], members["documents/0/0.kv"]


HOSTILE = {
    "a path that leads out": lambda members: members.update({"../../evil.txt": b"x"}),
    "an absolute path": lambda members: members.update({"/etc/evil": b"x"}),
    "a member too many": lambda members: members.update({"documents/1/99.kv": b"x"}),
    "a member missing": lambda members: members.pop("documents/1/0.kv"),
    "another text": lambda members: members.update({"documents/1/text.txt": b"short"}),
    "memory with a flipped bit": flipped("documents/1/0.kv", -5),
    "a header with a flipped bit": flipped("documents/1/0.kv", 40),
    "rows that are no JSON": lambda members: members.update({"documents/1/rows.json": b"[[[["}),
    "rows nested without end": lambda members: members.update({"documents/1/rows.json": b"[" * 200_000}),
    "tokens that the model has not": rows(blocks=lambda old: [[old[0][0], old[0][1], [10**9], []], *old[1:]]),
    "blocks outside the text": rows(blocks=lambda old: [[0, 10**9, old[0][2], []], *old[1:]]),
    "a box that is no number": rows(blocks=lambda old: [[*old[0][:3], [[0, 0, 0, 0, float("inf")]]], *old[1:]]),
    "pages outside the text": rows(pages=[[0, "1", 1.0, 1.0, 0, 10**9, ""]]),
    "fewer blocks than memory": rows(blocks=lambda old: old[:-1], num_tokens=1),
    "a kind that leads out": rows(kind="../../x"),
    "a kind of its own": rows(kind="exe"),
    "a date that is none": rows(properties=[["date", "soon", True]]),
    "keys of a title that are too short": rows(title_keys="AAAA"),
    "a wrong hash of the original": rows(original_sha256="0" * 63),
    "another original": lambda members: members.update({"documents/1/original.txt": b"quite another file"}),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_bundle_is_refused_and_nothing_is_changed(what, bundle, elsewhere, tmp_path):
    before = stored(elsewhere)
    with pytest.raises(BadBundle, match="Nothing was changed"):
        list(elsewhere.bundles.import_from(rewritten(bundle, HOSTILE[what])))
    assert stored(elsewhere) == before == (0, 0) and elsewhere.collections.list() == []
    assert not list(tmp_path.glob("**/evil*"))


def test_a_file_is_not_stored_already_because_a_bundle_says_so(bundle, elsewhere, tmp_path):
    real = tmp_path / "real.txt"
    real.write_text("What the bundle says that it holds, and does not.")
    lie = hashlib.sha256(real.read_bytes()).hexdigest()
    list(elsewhere.bundles.import_from(rewritten(bundle, rows(content_sha256=lie))))
    number = len(elsewhere.documents.list())
    elsewhere.documents.submit(real)
    assert len(elsewhere.documents.list()) == number + 1


def test_a_text_that_its_original_does_not_say_is_found(bundle, elsewhere):
    def forge(members: dict[str, bytes]) -> None:
        members["documents/1/text.txt"] = members["documents/1/text.txt"][::-1]

    arrived = list(elsewhere.bundles.import_from(rewritten(bundle, forge)))
    assert elsewhere.maintenance.verify().ok
    report = elsewhere.maintenance.verify(texts=True)
    (found,) = report.damage
    assert found.document_id == arrived[1].document_id and "not what its original says" in found.detail


def test_a_text_of_a_bundle_cannot_turn_the_order_of_letters_about(bundle, elsewhere):
    def turn(members: dict[str, bytes]) -> None:
        text = members["documents/1/text.txt"].decode()
        members["documents/1/text.txt"] = f"{text[:4]}\u202e{text[5:]}".encode()

    list(elsewhere.bundles.import_from(rewritten(bundle, turn)))
    texts = [elsewhere.documents.page_text(one.id, 1).text for one in elsewhere.documents.list()]
    assert not any("\u202e" in text for text in texts)


def test_a_damaged_or_cut_bundle_is_refused_and_nothing_is_changed(bundle, elsewhere, tmp_path):
    whole = bundle.read_bytes()
    broken = tmp_path / "broken.cairn"
    pieces = [b"", b"PK", whole[:100], whole[: len(whole) // 2], whole[:-10], whole[1000:], b"x" * 1000]
    pieces += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(200, len(whole), len(whole) // 12)]
    for piece in pieces:
        broken.write_bytes(piece)
        with pytest.raises(BadBundle):
            list(elsewhere.bundles.import_from(broken))
    assert stored(elsewhere) == (0, 0)


def test_members_in_the_wrong_order_are_refused(bundle, elsewhere):
    with pytest.raises(BadBundle, match="is not what was exported"):
        list(elsewhere.bundles.import_from(rewritten(bundle, swapped, honest=False)))
    assert stored(elsewhere) == (0, 0)


def test_members_that_are_compressed_or_doubled_are_refused(bundle, elsewhere):
    dishonest = rewritten(bundle, lambda members: members.update({"documents/1/text.txt": b"other"}), honest=False)
    with pytest.raises(BadBundle):
        list(elsewhere.bundles.import_from(dishonest))
    with zipfile.ZipFile(bundle) as old, zipfile.ZipFile(dishonest, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    with pytest.raises(BadBundle, match="compressed"):
        list(elsewhere.bundles.import_from(dishonest))


def test_an_import_that_is_interrupted_goes_on_where_it_stopped(bundle, elsewhere):
    arriving = elsewhere.bundles.import_from(bundle)
    next(arriving)
    arriving.close()  # type: ignore[attr-defined]
    assert sorted(one.status for one in elsewhere.bundles.import_from(bundle)) == [
        "already stored",
        "imported",
        "imported",
    ]
    assert elsewhere.maintenance.verify().ok


# Small files, or small parts of files, that would take much memory before they can be checked


def bundled(path: Path, manifest: bytes, *, kind: int = zipfile.ZIP_STORED, members: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for number in range(members):
            archive.writestr(zipfile.ZipInfo(f"documents/{number}/0.kv"), b"")
        archive.writestr(MANIFEST, manifest)
    return path


def peak_bytes(library: Library, path: Path, reason: str) -> int:
    """Of memory while the file is refused for this reason."""
    tracemalloc.start()
    try:
        with pytest.raises(BadBundle, match=reason):
            list(library.bundles.import_from(path))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_compressed_manifest_is_not_unpacked(elsewhere, tmp_path):
    manifest = b'{"format": "cairn-bundle/1", "members": {}, "more": [' + b"{}," * 1_000_000 + b"{}]}"
    path = bundled(tmp_path / "bomb.cairn", manifest, kind=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 20_000
    assert peak_bytes(elsewhere, path, "some of it is compressed") < 1_000_000


def test_a_manifest_that_is_most_of_the_file_is_not_read(elsewhere, tmp_path):
    manifest = b'{"format": "cairn-bundle/1", "members": {}, "more": [' + b"{}," * 500_000 + b"{}]}"
    assert peak_bytes(elsewhere, bundled(tmp_path / "much.cairn", manifest), "manifest is too large") < 1_000_000


def test_a_directory_of_very_many_members_is_not_read(elsewhere, tmp_path):
    path = bundled(tmp_path / "many.cairn", b"{}", members=100)
    (size,) = struct.unpack("<L", path.read_bytes()[-10:-6])
    with zipfile.ZipFile(path, "a") as archive:
        archive.filelist *= 200  # the same members, named again and again
        archive.comment = b""  # so that the directory is written anew
    assert path.stat().st_size < 210 * size
    assert peak_bytes(elsewhere, path, "more members than it can have") < 1_000_000


def test_rows_are_not_larger_than_what_they_describe(bundle, elsewhere):
    hostile = rewritten(bundle, rows(extras={"more": [0] * 900_000}))
    with pytest.raises(BadBundle, match=r"rows.json has .* at most"):
        list(elsewhere.bundles.import_from(hostile))
