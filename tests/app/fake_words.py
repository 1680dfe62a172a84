"""Words and identities of the fake library: the same for the same name, every time."""

from __future__ import annotations

import hashlib
import random
from typing import Any

from retrieval.errors import NotFound

BLOCK_CHARACTERS, LINES_A_BLOCK, BLOCKS_A_PAGE = 230, 4, 9
NOW = "2026-05-04T09:30:00+00:00"

PARAGRAPHS = (
    "The reservoir supplies drinking water to four towns in the valley. Its dam was finished in 1964 and raised "
    "by three metres in 1981, when the eastern villages were connected to the network. ",
    "Maintenance is carried out every spring, before the snow melts. The outer valves are inspected first, then "
    "the spillway, and last the two turbines in the lower gallery, which must be drained for it. ",
    "Water quality is measured at nine stations. Samples are taken on Mondays and Thursdays; the laboratory in "
    "Rosental reports the results within two days and publishes them on the notice board of each town hall. ",
    "In a dry summer the council may restrict the watering of gardens. The first step is a request, the second a "
    "ban between ten in the morning and six in the evening, the third a full ban until the level has recovered. ",
    "The footpath around the lake is eleven kilometres long. It is closed during works on the dam crest, and a "
    "diversion through the forest is signposted from the northern car park. ",
)


def page_words(seed: int, extra: str = "") -> str:
    chosen = random.Random(seed).sample(PARAGRAPHS, k=len(PARAGRAPHS)) * 2
    return (extra + "".join(chosen))[: BLOCK_CHARACTERS * BLOCKS_A_PAGE]


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def get(rows: dict[str, Any], kind: str, key: str) -> Any:
    if key not in rows:
        raise NotFound(kind, key)
    return rows[key]
