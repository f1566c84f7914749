"""``tidelog log``: commands that read log files themselves and need no broker."""

from __future__ import annotations

import typer

from tidelog.cli import log_dump, log_verify

app = typer.Typer()
app.command("dump", epilog=log_dump.EPILOG, no_args_is_help=True)(log_dump.command)
app.command("verify", epilog=log_verify.EPILOG, no_args_is_help=True)(log_verify.command)
