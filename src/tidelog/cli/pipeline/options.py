"""The options of ``tidelog pipeline``, and what those that come together say."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import typer

from tidelog.cli.connect import parse_assignments
from tidelog.cli.failure import WrongUsage
from tidelog.cli.lake.options import DEFAULT_CATALOG, DEFAULT_DIRECTORY, CatalogOptions, Directory
from tidelog.errors import ConfigError

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME…", help="Pipelines, or `all`.", show_default=False),
]
Master = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Where Spark runs: local[*] or spark://HOST:PORT."),
]
Format = Annotated[
    str,
    typer.Option(
        "--format", metavar="NAME", help="Spark's data source: tidelog, or kafka for the JVM connector."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Trigger = Annotated[
    str, typer.Option("--trigger", metavar="TIME", help="Time between micro-batches, as `2 seconds`.")
]
Once = Annotated[bool, typer.Option("--once", help="Work off what is there now, then stop.")]
StartingOffsets = Annotated[
    str,
    typer.Option(
        "--starting-offsets",
        metavar="OFFSETS",
        help="Where the first run begins: earliest, latest or JSON; later runs go on from the checkpoint.",
    ),
]
MaxOffsets = Annotated[
    int,
    typer.Option("--max-offsets-per-trigger", metavar="N", min=1, help="Records of one micro-batch at most."),
]
MinPartitions = Annotated[
    int | None,
    typer.Option(
        "--min-partitions",
        metavar="N",
        min=1,
        help="Tasks that read a batch at least; about one for each core of this machine if left out.",
        show_default=False,
    ),
]
StatePartitions = Annotated[
    int | None,
    typer.Option(
        "--state-partitions",
        metavar="N",
        min=1,
        max=1024,
        help="Parts of a new state (of alerts: a power of two); one that is there keeps its own.",
        show_default=False,
    ),
]


class PipelineOptions(Protocol):
    """The options that an application's pipelines add to ``run`` or ``backfill``: a dataclass of options."""

    def extension(self) -> object:
        """The settings that they make, for ``PipelineSettings.extensions``."""


def options_of_pipelines(kind: Literal["run_options", "backfill_options"]) -> tuple[type[Any], ...]:
    """The classes of options of all installed pipelines, each once."""
    from tidelog.spark.pipelines import registry

    places = [getattr(pipeline, kind) or pipeline.run_options for pipeline in registry.installed().values()]
    return tuple(_class_at(place) for place in dict.fromkeys(places) if place is not None)


def _class_at(place: str) -> type[Any]:
    module, _, name = place.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def _expiring_tables() -> tuple[str, ...]:
    from tidelog.spark.pipelines import registry

    tables = [table for each in registry.installed().values() for table in each.expiring_tables]
    return tuple(dict.fromkeys(tables))


@dataclass(frozen=True)
class TableStore:
    """Where tables are kept, if not in files."""

    cassandra: Annotated[
        str | None,
        typer.Option(
            "--cassandra",
            metavar="HOST[:PORT][,…]",
            help="Keep tables in Cassandra instead of SQLite and the lake alone.",
            show_default=False,
        ),
    ] = None
    keyspace: Annotated[str, typer.Option("--keyspace", metavar="NAME", help="Cassandra's keyspace.")] = (
        "tidelog"
    )
    cassandra_config: Annotated[
        Path | None,
        typer.Option(
            "--cassandra-config",
            metavar="FILE",
            help="A properties file with options for Cassandra (login, TLS, consistency, TTL, …).",
            show_default=False,
        ),
    ] = None
    cassandra_set: Annotated[
        list[str] | None,
        typer.Option(
            "--cassandra-set",
            metavar="NAME=VALUE",
            help="One such option, before those of the file; may be repeated.",
            show_default=False,
        ),
    ] = None

    def settings(self) -> dict[str, object]:
        """The same for pipelines, with what the file says; what is wrong is refused in one sentence."""
        from tidelog.properties import read_properties
        from tidelog.spark.cassandra_options import (
            PASSWORD_VARIABLE,
            ContactPoints,
            cassandra_options,
            check_keyspace,
        )

        if self.cassandra is None:
            for option, value in (
                ("--cassandra-config", self.cassandra_config),
                ("--cassandra-set", self.cassandra_set),
            ):
                if value:
                    raise WrongUsage(f"{option} has no effect without --cassandra HOST[:PORT]")
            return {}
        given = dict(parse_assignments(self.cassandra_set, "--cassandra-set"))
        if "password" in given:
            raise WrongUsage(
                "--cassandra-set password=… shows the password to everybody on this machine: set "
                f"password.file, or {PASSWORD_VARIABLE} in the environment, or write it into the file of "
                "--cassandra-config"
            )
        from_file = {} if self.cassandra_config is None else read_properties(self.cassandra_config)
        try:
            ContactPoints.parse(self.cassandra)
            check_keyspace(self.keyspace)
            options = cassandra_options({**from_file, **given}, expiring_tables=_expiring_tables())
        except ConfigError as error:
            raise WrongUsage(str(error)) from error
        return {"cassandra": self.cassandra, "keyspace": self.keyspace, "cassandra_options": options}


DEFAULT_STORE = TableStore()


@dataclass(frozen=True)
class Work:
    """Where and how Spark works off pipelines, as a stream or over a range of time."""

    min_partitions: MinPartitions = None
    state_partitions: StatePartitions = None
    directory: Directory = DEFAULT_DIRECTORY
    master: Master = "local[*]"
    format: Format = "tidelog"
    store: TableStore = DEFAULT_STORE
    catalog: CatalogOptions = DEFAULT_CATALOG
    conf: Conf = None

    def settings(self, own: Sequence[PipelineOptions]) -> dict[str, object]:
        """The same for pipelines, with the options that these have themselves."""
        return {
            "directory": self.directory,
            "min_partitions": self.min_partitions,
            "state_partitions": self.state_partitions,
            "format": self.format,
            "lake_catalog": self.catalog.lake_catalog,
            "lake_properties": self.catalog.properties,
            "lake_warehouse": self.catalog.lake_warehouse,
            "extensions": tuple(each.extension() for each in own),
            **self.store.settings(),
        }

    @property
    def spark_options(self) -> dict[str, str]:
        return dict(parse_assignments(self.conf, "--conf"))


DEFAULT_WORK = Work()
"""Stands for the options in the signature of a command."""

From = Annotated[
    str, typer.Option("--from", metavar="TIME", help="First day or moment of event time (UTC), included.")
]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="Day or moment where it ends, not included.")]
