"""Command line of Cairn: `run` is the console script. One module a group of commands.

- Nothing heavy is imported before it is used: `cairn --help` answers in a fraction of a second.
- Every command takes --json and then writes only JSON to stdout: one object, or one line an item.
- Progress and problems go to stderr. Exit status: 0 done, 1 something failed, 2 the command was written wrongly.
"""

from app.cli.commands import cli, run

__all__ = ["cli", "run"]
