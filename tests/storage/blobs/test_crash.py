"""kill -9 of a writer to a bucket. 100 kills: `python -m tests.storage.blobs.crash`, or `pytest -m slow`."""

import json

import pytest

from tests import forked


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_killing_a_writer_to_a_bucket_loses_nothing_acknowledged_and_shows_nothing_half(kills):
    run = forked.run("-m", "tests.storage.blobs.crash", "--kills", kills, timeout=120 + 30 * kills)
    assert run.returncode == 0, run.stderr[-3000:]
    result = json.loads(run.stdout.splitlines()[-1])
    assert (result["kills"], result["violations"]) == (kills, 0)
    assert result["ready"] > 0, "the machine was too slow for the writer to finish a single document"
