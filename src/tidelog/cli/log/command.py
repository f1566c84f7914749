"""``tidelog log``: commands that read log files themselves and need no broker."""

from __future__ import annotations

import typer

from tidelog.cli.log import dump, verify

app = typer.Typer()
app.command("dump", epilog=dump.EPILOG, no_args_is_help=True)(dump.command)
app.command("verify", epilog=verify.EPILOG, no_args_is_help=True)(verify.command)
