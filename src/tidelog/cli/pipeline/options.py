"""The options of ``tidelog pipeline``, and what those that come together say."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connect import parse_assignments
from tidelog.cli.failure import WrongUsage
from tidelog.cli.lake.options import DEFAULT_CATALOG, DEFAULT_DIRECTORY, CatalogOptions, Directory
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from tidelog_rewards.settings import PhoneSettings, RewardsSettings

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
RulesFile = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="Rules of the detecting pipelines (TOML); a change is taken at the next micro-batch.",
        show_default=False,
    ),
]

Country = Annotated[
    str,
    typer.Option(
        "--country", metavar="CODE", help="Where numbers without an international prefix are from (ISO 3166)."
    ),
]
Language = Annotated[
    str,
    typer.Option(
        "--language", metavar="CODE", help="Of countries, places and carriers; Chinese is there in any case."
    ),
]
PhoneKeysFile = Annotated[
    Path | None,
    typer.Option(
        "--phone-keys",
        metavar="FILE",
        help="Keys of the tokens that stand for phone numbers; made in DIR if left out.",
        show_default=False,
    ),
]
AllowCutLog = Annotated[
    bool,
    typer.Option(
        "--allow-cut-log",
        help="Of detecting pipelines: judge by what is there, though older records that count are deleted.",
    ),
]
ClearPhones = Annotated[
    bool, typer.Option("--clear-phones", help="Write phone numbers themselves instead of tokens.")
]


@dataclass(frozen=True)
class Phones:
    """How phone numbers are read and written."""

    country: Country = "CN"
    language: Language = "en"
    phone_keys: PhoneKeysFile = None
    clear_phones: ClearPhones = False

    def settings(self) -> PhoneSettings:
        """The same for pipelines; raises where something is not known."""
        from tidelog_rewards.settings import LANGUAGES, PhoneSettings

        if self.language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            raise WrongUsage(f"--language {self.language}: there are names in {known}")
        if importlib.util.find_spec("phonenumbers") is not None:
            from phonenumbers import SUPPORTED_REGIONS

            if self.country not in SUPPORTED_REGIONS:
                raise WrongUsage(f"--country {self.country} is no country: write its ISO 3166 code, as CN")
        return PhoneSettings(self.clear_phones, self.phone_keys, self.country, self.language)


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
            options = cassandra_options({**from_file, **given})
        except ConfigError as error:
            raise WrongUsage(str(error)) from error
        return {"cassandra": self.cassandra, "keyspace": self.keyspace, "cassandra_options": options}


DEFAULT_PHONES = Phones()
DEFAULT_STORE = TableStore()


@dataclass(frozen=True)
class Work:
    """Where and how Spark works off pipelines, as a stream or over a range of time."""

    min_partitions: MinPartitions = None
    state_partitions: StatePartitions = None
    rules: RulesFile = None
    directory: Directory = DEFAULT_DIRECTORY
    master: Master = "local[*]"
    format: Format = "tidelog"
    store: TableStore = DEFAULT_STORE
    catalog: CatalogOptions = DEFAULT_CATALOG
    conf: Conf = None
    phones: Phones = DEFAULT_PHONES

    def settings(self, *, allow_cut_log: bool = False) -> dict[str, object]:
        """The same for pipelines; raises where something is not known."""
        return {
            "directory": self.directory,
            "min_partitions": self.min_partitions,
            "state_partitions": self.state_partitions,
            "format": self.format,
            "lake_catalog": self.catalog.lake_catalog,
            "lake_properties": self.catalog.properties,
            "lake_warehouse": self.catalog.lake_warehouse,
            "extensions": (self._own(allow_cut_log),),
            **self.store.settings(),
        }

    def _own(self, allow_cut_log: bool) -> RewardsSettings:
        from tidelog_rewards.settings import RewardsSettings

        return RewardsSettings(self.phones.settings(), self.rules, allow_cut_log)

    @property
    def spark_options(self) -> dict[str, str]:
        return dict(parse_assignments(self.conf, "--conf"))


DEFAULT_WORK = Work()
"""Stands for the options in the signature of a command."""

From = Annotated[
    str, typer.Option("--from", metavar="TIME", help="First day or moment of event time (UTC), included.")
]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="Day or moment where it ends, not included.")]
