"""``tidelog log``: commands that read log files themselves and need no broker."""

from __future__ import annotations

import typer

app = typer.Typer()
