"""The compose file and the manifests for Kubernetes name settings, commands and routes that there are."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from app.api import health
from app.cli import cli
from app.cli.work import ALIVE_FILE
from app.settings import Settings

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMPOSE = yaml.safe_load((DOCS / "compose" / "compose.yaml").read_text())
MANIFESTS = [
    manifest
    for block in re.findall(r"```yaml\n(.*?)```", (DOCS / "kubernetes.md").read_text(), re.DOTALL)
    for manifest in yaml.safe_load_all(block)
]


def containers() -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Command and environment of everything that runs Cairn."""
    for service in COMPOSE["services"].values():
        if service["image"] == "cairn":
            yield service["command"], service["environment"]
    for manifest in MANIFESTS:
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            for one in manifest["spec"]["template"]["spec"]["containers"]:
                yield one["command"], {each["name"]: each["value"] for each in one["env"]}


def test_every_setting_is_one_and_every_command_is_known() -> None:
    known = {f"CAIRN_{name.upper()}" for name in Settings.model_fields}
    assert len(list(containers())) == 5
    for command, environment in containers():
        named = {name for name in environment if name.startswith("CAIRN_")}
        assert named and named <= known, named - known
        assert command[:3] == [".venv/bin/python", "-m", "app"]
        told = CliRunner().invoke(cli, [*command[3:], "--help"])
        assert told.exit_code == 0, (shlex.join(command), told.output)


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_probes_and_the_balancer_ask_routes_that_there_are(probe: str) -> None:
    (server,) = (manifest for manifest in MANIFESTS if manifest["kind"] == "StatefulSet")
    asked = server["spec"]["template"]["spec"]["containers"][0][probe]["httpGet"]["path"]
    answered = (Path(health.__file__)).read_text()
    assert f'@routes.get("{asked}")' in answered
    assert "httpchk GET /readyz" in (DOCS / "compose" / "haproxy.cfg").read_text()


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: f"{one['kind']} {one['metadata']['name']}")
def test_every_manifest_meets_the_schema_of_its_kind(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_pods_may_do_no_more_than_they_need() -> None:
    """The restricted profile of the Pod Security Standards, and no writing beside the volumes."""
    pods = [one["spec"]["template"]["spec"] for one in MANIFESTS if "template" in one["spec"]]
    assert len(pods) == 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] and pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False and own["capabilities"] == {"drop": ["ALL"]}
        assert own["readOnlyRootFilesystem"] and {one["mountPath"] for one in container["volumeMounts"]} == {
            "/data",
            "/tmp",
        }
        assert "memory" in container["resources"]["limits"] and "livenessProbe" in container
        assert "@sha256:" in container["image"]
    chosen = [one["spec"]["podSelector"] for one in MANIFESTS if one["kind"] == "NetworkPolicy"]
    assert len(chosen) == 2


def test_a_workers_probe_looks_at_the_file_that_it_touches() -> None:
    (worker,) = (one for one in MANIFESTS if one["kind"] == "Deployment")
    command = worker["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["exec"]["command"]
    assert f"/data/{ALIVE_FILE}" in command[2]


def test_the_balancer_gives_up_on_slow_heads_and_limits_each_address() -> None:
    config = (DOCS / "compose" / "haproxy.cfg").read_text()
    assert "timeout http-request" in config and re.search(r"reject if \{ sc0_conn_cur gt \d+ \}", config)


def test_servers_get_longer_to_end_than_they_give_to_answers() -> None:
    for manifest in MANIFESTS:
        if manifest["kind"] == "StatefulSet":
            longest = manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
            assert longest > Settings.model_fields["drain_seconds"].default
