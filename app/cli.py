"""Command line of Cairn."""


def run() -> None:
    raise SystemExit("Not there yet.")
