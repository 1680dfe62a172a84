"""Blocks with rare words of the question are proposed, whatever their landmarks say."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from model.checkpoint.landmark_model import LandmarkModel
from retrieval.index import inverted_index
from retrieval.index.inverted_index import index_terms, postings_of
from retrieval.index.snapshot import MemorySnapshot
from retrieval.index.terms import asked_terms
from retrieval.library import Library
from retrieval.query import search
from retrieval.query.search import find_blocks
from retrieval.types.records import Scope
from tests.retrieval.conftest import SHARD_BYTES, add
from tests.retrieval.query.test_token_ranking import by_tokens  # noqa: F401

PLAIN = "There are many forms, and they are sent by mail. "
CODE = "Send form ZX-81 to the harbour office. "


@pytest.fixture(scope="module")
def forms_home(by_tokens: LandmarkModel, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    folder = tmp_path_factory.mktemp("forms")
    (folder / "forms.txt").write_text(PLAIN * 60 + CODE + PLAIN * 60)
    (folder / "mail.txt").write_text("Nobody knows. " + PLAIN * 20)
    with Library.open(folder / "home", by_tokens, shard_bytes=SHARD_BYTES) as library:
        for name in ("forms.txt", "mail.txt"):
            add(library, folder / name)
    return folder / "home"


@pytest.fixture
def library(
    forms_home: Path,
    open_library: Callable[..., Library],
    by_tokens: LandmarkModel,  # noqa: F811
    tmp_path: Path,
) -> Library:
    shutil.copytree(forms_home, tmp_path / "home")
    return open_library(model=by_tokens)


def proposed(library: Library, question: str, scope: Scope | None = None) -> list[str]:
    """Texts of the blocks that rare words alone propose."""
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        within = None if scope is None else snapshot.indices_of(scope.document_ids)
        held = postings_of(library.view.workspace, snapshot, asked_terms(question), within)
        return texts_of(library, snapshot, held.proposed())


def texts_of(library: Library, snapshot: MemorySnapshot, indices: Sequence[int]) -> list[str]:
    ids = snapshot.blocks.ids_N[np.asarray(indices, dtype=np.int64)].tolist()
    rows = library.view.catalogue.blocks_by_id(ids)
    return [library.view.workspace.loaded().model.decode(rows[id_].tokens) for id_ in ids]


def test_blocks_with_rare_words_are_proposed_and_others_are_not(library: Library) -> None:
    texts = proposed(library, "Where do I send form ZX-81?")
    assert len(texts) == 1 and "ZX-81" in texts[0]
    assert proposed(library, "Which forms are sent by mail?") == [], "all blocks hold these"
    mail = next(document.id for document in library.documents.list() if document.title == "mail")
    assert proposed(library, "ZX-81?", Scope((mail,))) == []


def test_a_block_gains_by_the_heading_that_it_stands_under(library: Library, tmp_path: Path) -> None:
    fee = "Each boat pays a fee of five. "
    (tmp_path / "fees.md").write_text(f"# Harbour\n\n{PLAIN * 20}{fee}\n\n# Lake\n\n{PLAIN * 20}{fee}\n")
    add(library, tmp_path / "fees.md")
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        held = postings_of(library.view.workspace, snapshot, asked_terms("harbour fee"), None)
        indices = held.indices_of["fee"]
        texts = texts_of(library, snapshot, indices.tolist())
        shares = held.shares(indices).tolist()
    assert len(texts) > 1 and not any("Harbour" in text for text in texts)
    assert shares[0] > shares[-1] > 0, "the first fee stands under the harbour"


def test_what_landmarks_do_not_propose_is_found_by_its_rare_words(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(question: str) -> str:
        with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
            blocks = find_blocks(library.view.workspace, snapshot, question, 1, None)
            return texts_of(library, snapshot, blocks.indices_C)[0]

    monkeypatch.setattr(search, "FEWEST_PROPOSED", 1)
    monkeypatch.setattr(search, "PROPOSED_PER_BLOCK", 1)
    monkeypatch.setattr(search, "TERM_WEIGHT", 2.0)
    assert "ZX-81" in found("Where do I send form ZX-81?")
    monkeypatch.setattr(inverted_index, "PROPOSED", 0)
    assert "ZX-81" not in found("Where do I send form ZX-81?")


def test_words_of_older_libraries_are_noted_once_and_go_with_their_documents(library: Library) -> None:
    workspace = library.view.workspace
    assert index_terms(workspace) == 0
    rare_terms_before = proposed(library, "ZX-81")
    for shard in workspace.catalogue.shards():
        workspace.catalogue.put_terms(shard.id, {}, rule=0)
    assert proposed(library, "ZX-81") == []
    assert library.maintenance.index_blocks(lambda: False) == 0
    assert library.maintenance.index_blocks() == len(workspace.catalogue.shards())
    assert library.maintenance.index_blocks() == 0
    assert proposed(library, "ZX-81") == rare_terms_before
    library.documents.delete([document.id for document in library.documents.list() if document.title == "forms"])
    assert proposed(library, "ZX-81") == []


def test_a_code_that_a_border_cuts_in_two_is_found_by_both_blocks(
    open_library: Callable[..., Library],
    by_tokens: LandmarkModel,  # noqa: F811
    tmp_path: Path,
) -> None:
    library = open_library(model=by_tokens)
    for number in range(60):  # one of these lengths has the border where it hurts
        (tmp_path / "keys.txt").write_text(PLAIN * 20 + "a " * number + "Press (Ctrl+Q9) to quit. " + PLAIN * 40)
        document = add(library, tmp_path / "keys.txt")
        texts = proposed(library, "What does Ctrl+Q9 do?")
        assert texts, number
        if not any("Ctrl+Q9" in text for text in texts):
            break
        library.documents.delete([document])
    else:
        pytest.fail("no border stood in the code")
    assert len(texts) == 2 and "Ctrl+Q9" in "".join(reversed(texts)), "of equals the newest comes first"


def test_blocks_are_worth_what_rare_terms_they_hold(library: Library) -> None:
    with library.view.index.open_snapshot(library.view.catalogue) as snapshot:
        held = postings_of(library.view.workspace, snapshot, {"zx-81", "form", "zebra"}, None)
        everywhere = np.arange(snapshot.num_blocks)
        shares = held.shares(everywhere)
        assert shares.max() > 0.9 and (shares > 0.5).sum() == 1, "a code says more than a word of every block"
        assert "ZX-81" in texts_of(library, snapshot, [int(shares.argmax())])[0]
        assert held.missing(everywhere) == {"zebra"} and "zx-81" in held.missing(everywhere[:1])
