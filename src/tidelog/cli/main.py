"""The ``tidelog`` command: decides which command runs, before anything heavy is imported.

``tidelog start`` has a start-up budget, so it is dispatched to :func:`tidelog.cli.start.main` (which takes
the remaining arguments and returns the exit code) without importing typer or rich. Of the other commands
only the module that the first argument names is imported; ``tidelog --help`` and misspelt commands
import them all.

Exit codes: 0 done, 1 it failed (one sentence on stderr says why), 2 the command line is wrong,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import tidelog


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line ``arguments`` (default: the process's own) and exit."""
    arguments = sys.argv[1:] if arguments is None else arguments
    _open_closed_streams()
    match arguments:
        case ["start", *rest]:
            from tidelog.cli.start import main as start

            sys.exit(start(rest))
        case ["--version" | "-V" | "version"]:
            print(f"tidelog {tidelog.__version__}")
            sys.exit(0)
    from tidelog.cli import commands

    sys.exit(commands.run(arguments))


def _open_closed_streams() -> None:
    """Put nothing in the place of standard streams that whoever started us has closed (``>&-``).

    Python has None for them; and the next file or socket would get their numbers.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


if __name__ == "__main__":
    main()
