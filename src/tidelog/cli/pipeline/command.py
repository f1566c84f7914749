"""``tidelog pipeline``: list the data pipelines, run them on Spark, work off days again, see how they stand.

Everything heavy is imported by the command that needs it: ``list`` and ``status`` start no Spark.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connect import client_options, parse_assignments, reached_options
from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.lake.options import (
    DEFAULT_CATALOG,
    DEFAULT_DIRECTORY,
    CatalogOptions,
    Directory,
    LakeForm,
    lake_form,
)
from tidelog.cli.output import examples, print_json, print_table
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.pipelines.pipeline import PhoneSettings, Pipeline, PipelineSettings

app = typer.Typer()

ALL = "all"
_TRIGGER = re.compile(r"\s*\d+\s*(milliseconds?|seconds?|minutes?|hours?)\s*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""Of a path one of the slashes is gone."""
_EXTRA = ("pyspark", "pyarrow", "phonenumbers")
_INSTALL = 'pipelines run on Spark, which is not installed: pip install "tidelog[spark]"'

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME…", help="Pipelines, or `all`.", show_default=False),
]
Master = Annotated[
    str,
    typer.Option("--master", "-m", metavar="URL", help="Where Spark runs: local[*] or spark://HOST:PORT."),
]
Format = Annotated[
    str,
    typer.Option(
        "--format", metavar="NAME", help="Spark's data source: tidelog, or kafka for the JVM connector."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", "-c", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Trigger = Annotated[
    str, typer.Option("--trigger", "-t", metavar="TIME", help="Time between micro-batches, as `2 seconds`.")
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
        from tidelog.pipelines.pipeline import LANGUAGES, PhoneSettings

        if self.language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            raise WrongUsage(f"--language {self.language}: there are names in {known}")
        if importlib.util.find_spec("phonenumbers") is not None:
            from phonenumbers import SUPPORTED_REGIONS

            if self.country not in SUPPORTED_REGIONS:
                raise WrongUsage(f"--country {self.country} is no country: write its ISO 3166 code, as CN")
        return PhoneSettings(self.clear_phones, self.phone_keys, self.country, self.language)


DEFAULT_PHONES = Phones()

MetricsAddress = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve /metrics for Prometheus there, with /live and /ready.",
        show_default=False,
    ),
]
Otlp = Annotated[
    str | None,
    typer.Option(
        "--otlp",
        metavar="URL",
        help="Send the same figures to an OpenTelemetry collector every minute.",
        show_default=False,
    ),
]
OtlpHeaders = Annotated[
    str | None,
    typer.Option(
        "--otlp-headers",
        metavar="NAME=VALUE,…",
        envvar="TIDELOG_OTLP_HEADERS",
        help="Headers for the collector, a password say.",
        show_default=False,
    ),
]


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


DEFAULT_STORE = TableStore()
"""Stands for the options in the signature of a command."""

_RUN_EXAMPLES = (
    "tidelog pipeline run all",
    "tidelog pipeline run earnings --once",
    "tidelog pipeline run all --metrics 127.0.0.1:9405",
    "tidelog pipeline run collect --lake parquet",
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
    pipelines = _chosen([ALL])
    if json:
        print_json([_listing(each) for each in pipelines])
    else:
        rows = [(each.name, each.summary, each.inputs, each.outputs) for each in pipelines]
        print_table(("pipeline", "what it does", "reads", "writes"), rows, header_in_pipes=False)


def _listing(pipeline: Pipeline) -> dict[str, object]:
    return {
        "pipeline": pipeline.name,
        "summary": pipeline.summary,
        "inputs": pipeline.inputs,
        "outputs": pipeline.outputs,
        "group": pipeline.group,
    }


@app.command(epilog=examples(*_RUN_EXAMPLES), no_args_is_help=True)
@grouped
def run(
    names: Names,
    once: Once = False,
    trigger: Trigger = "2 seconds",
    starting_offsets: StartingOffsets = "earliest",
    max_offsets_per_trigger: MaxOffsets = 100_000,
    min_partitions: MinPartitions = None,
    state_partitions: StatePartitions = None,
    rules: RulesFile = None,
    directory: Directory = DEFAULT_DIRECTORY,
    master: Master = "local[*]",
    format: Format = "tidelog",
    store: TableStore = DEFAULT_STORE,
    lake: LakeForm = None,
    catalog: CatalogOptions = DEFAULT_CATALOG,
    conf: Conf = None,
    metrics: MetricsAddress = None,
    otlp: Otlp = None,
    otlp_headers: OtlpHeaders = None,
    phones: Phones = DEFAULT_PHONES,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Run pipelines until Ctrl-C, all in one Spark session; a restart goes on exactly where they stopped."""
    from tidelog.cli.pipeline import run

    if not _TRIGGER.fullmatch(trigger):
        raise WrongUsage(f"--trigger {trigger!r} is no time: write `2 seconds` or `500 milliseconds`")
    pipelines = _chosen(names)
    settings = settings_of(
        connection,
        directory=directory,
        trigger="available-now" if once else trigger,
        starting_offsets=starting_offsets,
        max_offsets_per_trigger=max_offsets_per_trigger,
        min_partitions=min_partitions,
        state_partitions=state_partitions,
        rules=rules,
        format=format,
        lake_form=lake_form(lake),
        lake_catalog=catalog.lake_catalog,
        lake_properties=catalog.properties,
        phones=phones.settings(),
        **_table_store(store),
    )
    _check(pipelines, settings)
    spark_options = dict(parse_assignments(conf, "--conf"))
    require_spark()
    run.run(pipelines, settings, master, spark_options, run.Monitors(metrics, otlp, otlp_headers))


@app.command(epilog=examples(*_BACKFILL_EXAMPLES), no_args_is_help=True)
@grouped
def backfill(
    names: Names,
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="First day or moment of event time (UTC), included.")
    ],
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="Day or moment where it ends, not included.")
    ],
    json: JsonOutput = False,
    min_partitions: MinPartitions = None,
    state_partitions: StatePartitions = None,
    rules: RulesFile = None,
    allow_cut_log: AllowCutLog = False,
    directory: Directory = DEFAULT_DIRECTORY,
    master: Master = "local[*]",
    format: Format = "tidelog",
    store: TableStore = DEFAULT_STORE,
    lake: LakeForm = None,
    catalog: CatalogOptions = DEFAULT_CATALOG,
    conf: Conf = None,
    phones: Phones = DEFAULT_PHONES,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Work off a range of event time as one batch; doing it twice leaves what doing it once leaves."""
    from tidelog.cli.pipeline import backfill

    pipelines = _chosen(names)
    time_range = backfill.parse_range(start, end)
    settings = settings_of(
        connection,
        directory=directory,
        min_partitions=min_partitions,
        state_partitions=state_partitions,
        rules=rules,
        allow_cut_log=allow_cut_log,
        format=format,
        lake_form=lake_form(lake),
        lake_catalog=catalog.lake_catalog,
        lake_properties=catalog.properties,
        phones=phones.settings(),
        **_table_store(store),
    )
    _check(pipelines, settings)
    spark_options = dict(parse_assignments(conf, "--conf"))
    require_spark()
    backfill.backfill(pipelines, settings, time_range, master, spark_options, json=json)


@app.command(
    "dry-run",
    epilog=examples(
        "tidelog pipeline dry-run account-switch --rules mine.toml --from 2026-11-01 --to 2026-11-08"
    ),
    no_args_is_help=True,
)
@grouped
def dry_run(
    names: Names,
    rules: Annotated[Path, typer.Option("--rules", metavar="FILE", help="The rules that are to be tried.")],
    start: Annotated[
        str, typer.Option("--from", metavar="TIME", help="First day or moment of event time (UTC), included.")
    ],
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="Day or moment where it ends, not included.")
    ],
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
    from tidelog.cli.pipeline import backfill, dry_run

    time_range = backfill.parse_range(start, end)
    require_spark()
    phones = dry_run.phones_of(directory, clear=clear_phones)
    chosen = [each.name for each in _chosen(names)]
    reading = dry_run.Reading(time_range, client_options(connection), allow_cut_log)
    dry_run.show(chosen, rules, against, reading, phones, json=json)


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
            "--figures", "-f", help="Also rates, times, watermark, state and data quality of running ones."
        ),
    ] = False,
    json: JsonOutput = False,
    directory: Directory = DEFAULT_DIRECTORY,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Show lag, last micro-batch and dead letters of pipelines, and which of them run on this directory."""
    from tidelog.cli.pipeline import status

    pipelines = _chosen(names or [ALL])
    reached_options(connection)
    status.show(settings_of(connection, directory=directory), pipelines, json=json, figures=figures)


def settings_of(connection: Connection, **settings: object) -> PipelineSettings:
    """What the command line says, with the client's options out of the file."""
    from tidelog.pipelines.pipeline import PipelineSettings

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


def _table_store(store: TableStore) -> dict[str, object]:
    """What the command line and its file say about Cassandra; refused in one sentence what is wrong there."""
    from tidelog.pipelines.cassandra_options import (
        PASSWORD_VARIABLE,
        ContactPoints,
        cassandra_options,
        check_keyspace,
    )
    from tidelog.properties import read_properties

    if store.cassandra is None:
        for option, value in (
            ("--cassandra-config", store.cassandra_config),
            ("--cassandra-set", store.cassandra_set),
        ):
            if value:
                raise WrongUsage(f"{option} has no effect without --cassandra HOST[:PORT]")
        return {}
    given = dict(parse_assignments(store.cassandra_set, "--cassandra-set"))
    if "password" in given:
        raise WrongUsage(
            "--cassandra-set password=… shows the password to everybody on this machine: set password.file, "
            f"or {PASSWORD_VARIABLE} in the environment, or write it into the file of --cassandra-config"
        )
    from_file = {} if store.cassandra_config is None else read_properties(store.cassandra_config)
    try:
        ContactPoints.parse(store.cassandra)
        check_keyspace(store.keyspace)
        options = cassandra_options({**from_file, **given})
    except ConfigError as error:
        raise WrongUsage(str(error)) from error
    return {"cassandra": store.cassandra, "keyspace": store.keyspace, "cassandra_options": options}


def _check(pipelines: Sequence[Pipeline], settings: PipelineSettings) -> None:
    """Refuse settings with which a pipeline would not be exact, before anything is started."""
    try:
        for pipeline in pipelines:
            pipeline.check(settings)
    except ConfigError as error:
        raise WrongUsage(str(error)) from error


def _chosen(names: Sequence[str]) -> list[Pipeline]:
    from tidelog.pipelines import registry

    wanted = list(registry.PIPELINES) if ALL in names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in registry.PIPELINES:
            near = difflib.get_close_matches(name, registry.PIPELINES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(registry.PIPELINES)}"
            raise WrongUsage(f"there is no pipeline {name!r}; {hint}")
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
