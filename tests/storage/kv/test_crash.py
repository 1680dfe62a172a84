"""kill -9 at random moments. 200 kills: `python -m tests.storage.crash --kills 200`, or `pytest -m slow`."""

import json

import pytest

from tests import forked


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_killing_the_writer_loses_nothing_acknowledged_and_shows_nothing_half(kills):
    run = forked.run("-m", "tests.storage.crash", "--kills", kills, timeout=60 + 10 * kills)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    result = json.loads(run.stdout)
    assert (result["kills"], result["violations"]) == (kills, 0)
    assert result["journal"]["ready"] > 0, "the machine was too slow for the writer to finish a single document"
