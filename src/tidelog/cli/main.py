"""The ``tidelog`` command: decides which command runs, before anything heavy is imported.

``tidelog start`` has a start-up budget, so it is dispatched to :func:`tidelog.cli.start.main` (which takes
the remaining arguments and returns the exit code) without importing typer or rich. Of the other commands
only the module that the first argument names is imported; ``tidelog --help`` and misspelt commands
import them all.

Exit codes: 0 done, 1 it failed (one sentence on stderr says why), 2 the command line is wrong,
130 interrupted.
"""

from __future__ import annotations

import gc
import sys
from typing import NoReturn

import tidelog


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line ``arguments`` (default: the process's own) and exit."""
    arguments = sys.argv[1:] if arguments is None else arguments
    match arguments:
        case ["start", *rest]:
            # Nothing that imports make is garbage: not looking for any saves a tenth of the start. The broker
            # has the collector look again, in its own measure.
            gc.disable()
            try:
                from tidelog.cli.start import main as start

                sys.exit(start(rest))
            finally:
                gc.enable()
        case ["--version" | "-V" | "version"]:
            print(f"tidelog {tidelog.__version__}")
            sys.exit(0)
    from tidelog.cli import commands

    sys.exit(commands.run(arguments))


if __name__ == "__main__":
    main()
