"""`python -m app`, and the console script `cairn`."""

from __future__ import annotations


def main() -> None:
    """Run the command line. Imports stay inside, so that a spawned worker process does not load what it never uses."""
    from app.cli import run

    run()


if __name__ == "__main__":
    main()
