"""Where a new password comes from: the terminal, a pipe or the environment, and never the command line alone.

What stands on a command line is in the shell's history and in everybody's list of processes.
"""

from __future__ import annotations

import os
import sys

from tidelog.cli.asking import ask_secret, line_of_stdin
from tidelog.cli.failure import Failure, WrongUsage


def read_password(user: str, *, from_stdin: bool, variable: str | None) -> str:
    """The new password of ``user``; raises the sentence if there is none."""
    if from_stdin and variable is not None:
        raise WrongUsage("--password-stdin and --password-env are mutually exclusive")
    if variable is not None:
        password = os.environ.get(variable, "")
        if not password:
            raise Failure(
                f"environment variable {variable} is not set: set it to the password, or omit --password-env"
            )
        return password
    if from_stdin:
        password = line_of_stdin()
        if not password:
            raise Failure("no password on stdin: write it as one line")
        return password
    if not sys.stdin.isatty():
        raise WrongUsage(
            "cannot prompt for the password without a terminal: pass --password-stdin, or --password-env NAME"
        )
    return _ask(user)


def _ask(user: str) -> str:
    password = ask_secret(f"Password of {user}: ")
    if not password:
        raise Failure("a password must not be empty: nothing was changed")
    if ask_secret("Repeat the password: ") != password:
        raise Failure("the two passwords differ: nothing was changed")
    return password
