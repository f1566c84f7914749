"""``tidelog demo``: the main job. A broker, events, five pipelines on Spark, live in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.output import examples

EPILOG = examples(
    "tidelog demo",
    "tidelog demo --seconds 60",
    "tidelog demo --rate 5000 --dir /var/tmp/demo",
    "tidelog demo --resume",
)
RUNS_WITHOUT_ARGUMENTS = True
DEFAULT_RATE = 2000


def command(
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=1.0, help="Stop after this time.", show_default="Ctrl-C stops it"),
    ] = None,
    rate: Annotated[int, typer.Option("--rate", min=1, help="Events per second.")] = DEFAULT_RATE,
    directory: Annotated[
        Path,
        typer.Option("--dir", metavar="DIR", help="Where everything is kept; a new run starts it afresh."),
    ] = Path("data/demo"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what the last run left in --dir.")
    ] = False,
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline", metavar="NAME", help="Run this one alone; may be repeated.", show_default="all"
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65535, help="The broker's port.", show_default="9092, or any if taken"
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Another seed makes other events.")] = 1,
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="The Spark master to run on.")
    ] = "local[*]",
    cassandra: Annotated[
        str | None,
        typer.Option(
            "--cassandra",
            metavar="HOST[:PORT][,…]",
            help="Keep the tables in Cassandra, in a keyspace of the run's own.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Run everything at once: a broker, generated events, all five pipelines on Spark, and a live view.

    Nothing needs to be set up. Ctrl-C ends it cleanly: no new events, the pipelines work off what is left,
    then Spark and the broker stop. The data stay in --dir until the next run.
    """
    from rich.console import Console

    from tidelog_rewards.demo.run import run
    from tidelog_rewards.demo.settings import DemoSettings

    settings = DemoSettings(
        directory=directory,
        rate=rate,
        seconds=seconds,
        seed=seed,
        port=port,
        resume=resume,
        pipelines=tuple(pipeline or ()),
        master=master,
        cassandra=cassandra,
    )
    return run(settings, Console())
