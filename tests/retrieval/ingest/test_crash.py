"""kill -9 amid ingestion, deletion and repair. The number of kills comes from the environment: small here, 200 by
hand."""

from __future__ import annotations

import json
import os

import pytest

from tests import forked

KILLS = int(os.environ.get("CAIRN_TEST_KILLS", "4"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks its victims")
def test_no_kill_loses_or_halves_a_document_or_changes_an_answer():
    command = ["tests/stress/crash.py", "--kills", KILLS, "--seed", 3]
    ended = forked.run(*command, timeout=120 + 20 * KILLS)
    assert ended.returncode == 0, ended.stderr[-2000:] + ended.stdout
    assert json.loads(ended.stdout.splitlines()[-1])["violations"] == []
