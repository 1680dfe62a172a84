"""Order of the whole suite."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests last: the browser's driver keeps an event loop running, which asynchronous tests cannot share."""
    items.sort(key=lambda item: "tests/browser" in item.path.as_posix())
