"""What docs/langchain.md shows of a landmark language model answers from the whole memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.mission.conftest import Keyed
from tests.mission.passkey_model import QUESTION

PAGE = Path(__file__).resolve().parents[2] / "docs" / "langchain.md"


def test_the_chain_of_the_documentation_answers_and_says_what_was_read(keyed: Keyed) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "RunnableLambda" in block]
    names: dict[str, Any] = {"library": keyed.library}
    exec(code, names)
    found = names["chain"].invoke(QUESTION)
    assert found["answer"].strip() and found["passages"] and found["checked"] is not None
