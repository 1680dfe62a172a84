"""HTTP and the watcher: folders that a server follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.api.application import build_app
from app.work import FolderWatcher, JobRunner
from tests.app.serving import settings_for
from tests.waiting import until


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "crane.txt").write_text("The crane on the dam was painted yellow in 1971.")
    return tmp_path / "papers"


def test_a_folder_is_added_looked_at_and_forgotten(client: TestClient, library, papers: Path) -> None:
    added = client.post("/api/v1/folders", json={"path": str(papers), "collection": "Cranes"}).json()
    assert (added["path"], added["watched"], added["removed"]) == (str(papers), True, "keep")
    report = client.post(f"/api/v1/folders/{added['id']}/run").json()
    assert report["counts"] == {"reading": 1}
    assert library.jobs.run_next().state == "done"
    assert client.post(f"/api/v1/folders/{added['id']}/run").json()["counts"] == {"added": 1}
    listed = client.get("/api/v1/folders").json()
    assert listed["may_add"] and listed["folders"][0]["report"]["counts"] == {"added": 1}
    assert client.delete(f"/api/v1/folders/{added['id']}").status_code == 204
    assert client.get("/api/v1/folders").json()["folders"] == []
    assert "crane.txt" in {one.source for one in library.documents.list()}
    refused = client.post("/api/v1/folders", json={"path": "/no/such/folder"})
    assert refused.status_code == 422 and "no folder" in refused.json()["error"]["message"]


@pytest.mark.parametrize("settings", [{"host": "0.0.0.0", "password": "long enough"}, {"proxies": "127.0.0.1"}])
def test_whoever_comes_over_the_network_cannot_name_a_folder(library, home: Path, papers: Path, settings) -> None:
    app = build_app(settings_for(home, token="t" * 40, **settings), library, page=False)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        headers = {"Authorization": f"Bearer {'t' * 40}"}
        assert not client.get("/api/v1/folders", headers=headers).json()["may_add"]
        refused = client.post("/api/v1/folders", json={"path": str(papers)}, headers=headers)
        assert refused.status_code == 403 and library.folders.list() == []


def test_a_served_folder_is_followed_by_itself(library, papers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.work.FIRST_LOOK_SECONDS", 0.05)

    def sources() -> set[str]:
        return {one.source for one in library.documents.list() if one.state == "ready"}

    before = sources()
    with JobRunner(library, idle_seconds=0.05), FolderWatcher(library, [papers], interval_seconds=0.1):
        until(lambda: sources() == before | {"crane.txt"})
        (papers / "gate.txt").write_text("The gate of the dam was made in Rosental in 1962.")
        until(lambda: sources() == before | {"crane.txt", "gate.txt"})
    (folder,) = library.folders.list()
    assert not folder.watched and folder.report is not None


def test_a_folder_that_somebody_forgot_meanwhile_is_not_found(shared_client: TestClient) -> None:
    assert shared_client.post("/api/v1/folders/gone/run").status_code == 404
    assert shared_client.delete("/api/v1/folders/gone").status_code == 404
