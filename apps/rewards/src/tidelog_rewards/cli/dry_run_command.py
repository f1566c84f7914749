"""``tidelog pipeline dry-run``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.connect import client_options
from tidelog.cli.lake.options import DEFAULT_DIRECTORY, Directory
from tidelog.cli.output import examples
from tidelog.cli.pipeline.backfill import parse_range
from tidelog.cli.pipeline.command import chosen_pipelines, require_spark
from tidelog.cli.pipeline.options import From, Names, To
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog_rewards.cli.options import AllowCutLog, ClearPhones

EPILOG = examples(
    "tidelog pipeline dry-run account-switch --rules mine.toml --from 2026-11-01 --to 2026-11-08"
)


@grouped
def command(
    names: Names,
    rules: Annotated[Path, typer.Option("--rules", metavar="FILE", help="The rules that are to be tried.")],
    start: From,
    end: To,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", metavar="FILE", help="The rules to compare with.", show_default="the package's"
        ),
    ] = None,
    allow_cut_log: AllowCutLog = False,
    directory: Directory = DEFAULT_DIRECTORY,
    clear_phones: ClearPhones = False,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Say what a change of the rules would have raised over a past range; writes nothing, needs no Spark.

    Blocks of phone numbers have the tokens that the incidents of the directory have.
    """
    from tidelog_rewards.cli import dry_run

    time_range = parse_range(start, end)
    require_spark()
    phones = dry_run.phones_of(directory, clear=clear_phones)
    chosen = [each.name for each in chosen_pipelines(names)]
    reading = dry_run.Reading(time_range, client_options(connection), allow_cut_log)
    dry_run.show(chosen, rules, against, reading, phones, json=json)
