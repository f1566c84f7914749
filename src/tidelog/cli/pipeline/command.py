"""``tidelog pipeline``: list the data pipelines, run them on Spark, work off days again, see how they stand.

Everything heavy is imported by the command that needs it: ``list`` and ``status`` start no Spark.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connect import client_options, reached_options
from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.lake.options import DEFAULT_DIRECTORY, Directory
from tidelog.cli.output import examples, print_json, print_table
from tidelog.cli.pipeline.monitors import DEFAULT_MONITORS, Monitors
from tidelog.cli.pipeline.options import (
    DEFAULT_WORK,
    From,
    MaxOffsets,
    Names,
    Once,
    PipelineOptions,
    StartingOffsets,
    To,
    Trigger,
    Work,
    options_of_pipelines,
)
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.spark.pipelines.pipeline import Pipeline
    from tidelog.spark.settings import PipelineSettings

app = typer.Typer()

ALL = "all"
_TRIGGER = re.compile(r"\s*\d+\s*(milliseconds?|seconds?|minutes?|hours?)\s*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""Of a path one of the slashes is gone."""
_EXTRA = ("pyspark", "pyarrow")
_INSTALL = 'pipelines run on Spark, which is not installed: pip install "tidelog[spark]"'

_RUN_EXAMPLES = (
    "tidelog pipeline run all",
    "tidelog pipeline run earnings --once",
    "tidelog pipeline run all --metrics 127.0.0.1:9405",
    "tidelog pipeline run collect --lake-warehouse s3://bucket/events",
    "tidelog pipeline run collect --master spark://cluster:7077 --conf spark.executor.memory=2g",
    "tidelog pipeline run all --cassandra db1,db2 --cassandra-config cassandra.properties",
)
_BACKFILL_EXAMPLES = (
    "tidelog pipeline backfill earnings --from 2026-11-01 --to 2026-11-08",
    "tidelog pipeline backfill collect --from 2026-11-01T06:00:00Z --to 2026-11-01T07:00:00Z",
)
_STATUS_EXAMPLES = (
    "tidelog pipeline status",
    "tidelog pipeline status collect earnings --figures",
    "tidelog pipeline status earnings --json",
)


@app.command("list", epilog=examples("tidelog pipeline list"))
def list_pipelines(json: JsonOutput = False) -> None:
    """List the pipelines with what they read and write."""
    pipelines = chosen_pipelines([ALL])
    if json:
        print_json([_listing(each) for each in pipelines])
    else:
        rows = [(each.name, each.summary, each.inputs, each.outputs) for each in pipelines]
        print_table(("pipeline", "what it does", "reads", "writes"), rows)


def _listing(pipeline: Pipeline) -> dict[str, object]:
    return {
        "pipeline": pipeline.name,
        "summary": pipeline.summary,
        "inputs": pipeline.inputs,
        "outputs": pipeline.outputs,
        "group": pipeline.group,
    }


@app.command(epilog=examples(*_RUN_EXAMPLES), no_args_is_help=True)
@partial(grouped, own=options_of_pipelines("run_options"))
def run(
    names: Names,
    once: Once = False,
    trigger: Trigger = "2 seconds",
    starting_offsets: StartingOffsets = "earliest",
    max_offsets_per_trigger: MaxOffsets = 100_000,
    work: Work = DEFAULT_WORK,
    own: tuple[PipelineOptions, ...] = (),
    monitors: Monitors = DEFAULT_MONITORS,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Run pipelines until Ctrl-C, all in one Spark session; a restart goes on exactly where they stopped."""
    from tidelog.cli.pipeline import run

    if not _TRIGGER.fullmatch(trigger):
        raise WrongUsage(f"--trigger {trigger!r} is no time: write `2 seconds` or `500 milliseconds`")
    pipelines = chosen_pipelines(names)
    settings = settings_of(
        connection,
        trigger="available-now" if once else trigger,
        starting_offsets=starting_offsets,
        max_offsets_per_trigger=max_offsets_per_trigger,
        **work.settings(own),
    )
    _check(pipelines, settings)
    spark_options = work.spark_options
    require_spark()
    run.run(pipelines, settings, work.master, spark_options, monitors, json=json)


@app.command(epilog=examples(*_BACKFILL_EXAMPLES), no_args_is_help=True)
@partial(grouped, own=options_of_pipelines("backfill_options"))
def backfill(
    names: Names,
    start: From,
    end: To,
    json: JsonOutput = False,
    work: Work = DEFAULT_WORK,
    own: tuple[PipelineOptions, ...] = (),
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Work off a range of event time as one batch; doing it twice leaves what doing it once leaves."""
    from tidelog.cli.pipeline import backfill

    pipelines = chosen_pipelines(names)
    time_range = backfill.parse_range(start, end)
    settings = settings_of(connection, **work.settings(own))
    _check(pipelines, settings)
    spark_options = work.spark_options
    require_spark()
    backfill.backfill(pipelines, settings, time_range, work.master, spark_options, json=json)


@app.command(epilog=examples(*_STATUS_EXAMPLES))
@grouped
def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME…]", help="Pipelines; all if none.", show_default=False),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option(
            "--figures", help="Also rates, times, watermark, state and data quality of running ones."
        ),
    ] = False,
    json: JsonOutput = False,
    directory: Directory = DEFAULT_DIRECTORY,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Show lag, last micro-batch and dead letters of pipelines, and which of them run on this directory."""
    from tidelog.cli.pipeline import status

    pipelines = chosen_pipelines(names or [ALL])
    reached_options(connection)
    status.show(settings_of(connection, directory=directory), pipelines, json=json, figures=figures)


def settings_of(connection: Connection, **settings: object) -> PipelineSettings:
    """What the command line says, with the client's options out of the file."""
    from tidelog.spark.settings import PipelineSettings

    directory = settings.get("directory")
    if _URL.match(str(directory)):
        raise WrongUsage(
            f"--directory {directory}: an object store keeps no such files; give a directory that the driver "
            "and all executors see under the same path, of NFS for example"
        )
    options = client_options(connection)
    servers = str(options.pop("bootstrap.servers"))
    del options["client.id"]
    client = {name: str(value) for name, value in options.items()}
    return PipelineSettings(bootstrap_servers=servers, client_options=client, **settings)  # type: ignore[arg-type]


def _check(pipelines: Sequence[Pipeline], settings: PipelineSettings) -> None:
    """Refuse settings with which a pipeline would not be exact, before anything is started."""
    try:
        for pipeline in pipelines:
            pipeline.check(settings)
    except ConfigError as error:
        raise WrongUsage(str(error)) from error


def chosen_pipelines(names: Sequence[str]) -> list[Pipeline]:
    """The pipelines of these names; ``all`` is every installed one."""
    from tidelog.spark.pipelines import registry

    if not registry.installed():
        raise Failure(registry.NONE_INSTALLED)
    wanted = list(registry.installed()) if ALL in names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in registry.installed():
            raise WrongUsage(f"there is no pipeline {name!r}; {registry.hint(name)}")
    try:
        return [registry.load(name) for name in wanted]
    except ModuleNotFoundError as error:
        if error.name in _EXTRA:
            raise Failure(_INSTALL) from error
        raise


def require_spark() -> None:
    """Raise one sentence where the extra is not installed."""
    for module in _EXTRA:
        if importlib.util.find_spec(module) is None:
            raise Failure(_INSTALL)
