"""What commands ask the person at the terminal, also in the middle of work on the event loop.

While asyncio runs, the first Ctrl-C only cancels the task, which a blocking prompt does not notice: it would
stay there until the second. So Ctrl-C interrupts at once while something is asked.
"""

from __future__ import annotations

import contextlib
import getpass
import signal
import sys
from collections.abc import Iterator

import typer


def confirm(question: str) -> None:
    """Ask; ends the command with exit code 1 unless the answer is yes."""
    with interruptible():
        agreed = typer.confirm(question, err=True)
    if not agreed:
        raise typer.Exit(1)


def ask_secret(prompt: str) -> str:
    """What is typed at the terminal, unseen."""
    with interruptible():
        return getpass.getpass(prompt)


def line_of_stdin() -> str:
    """One line of stdin, without its end."""
    with interruptible():
        return sys.stdin.readline().rstrip("\r\n")


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C raise ``KeyboardInterrupt`` here and now, whatever handles it otherwise."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
