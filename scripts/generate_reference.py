"""Write the pages of ``docs/reference/`` from the option tables and the table of access (``make docs``).

Unit tests call :func:`render`, :func:`render_clients`, :func:`render_cassandra`, :func:`render_access`,
:func:`render_metrics` and :func:`render_client_metrics` and fail when the committed pages say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tidelog.broker.access.required_access import REQUIRED, Access, Need
from tidelog.client._metric_catalog import FAMILIES as CLIENT_FAMILIES
from tidelog.client._metric_catalog import WITHOUT_MEANING, is_kafkas
from tidelog.client.options import admin, consumer, producer
from tidelog.client.options import unsupported as unsupported_by_clients
from tidelog.client.options.old_names import OLD_OPTIONS, OLD_VALUES
from tidelog.config.options.broker_options import SUBJECTS
from tidelog.config.options.group_options import CONSUMER_OPTIONS, OTHER_OPTIONS, broker_synonym
from tidelog.config.options.tls_options import RECONFIGURABLE, TLS_OPTIONS
from tidelog.config.options.topic_options import SYNONYMS, TOPIC_SUBJECTS
from tidelog.config.options.unsupported_options import UNSUPPORTED
from tidelog.metrics.alerts import ALERTS
from tidelog.metrics.catalog import SECTIONS
from tidelog.metrics.dashboards import ALL as DASHBOARDS
from tidelog.metrics.pipeline_catalog import FAMILIES as PIPELINE_FAMILIES
from tidelog.options import MAX_INT, MAX_LONG, Option
from tidelog.spark.cassandra_options import OPTIONS as CASSANDRA_OPTIONS

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
PAGE = REFERENCE / "configuration.md"
CLIENT_PAGE = REFERENCE / "client-configuration.md"
CASSANDRA_PAGE = REFERENCE / "cassandra.md"
ACCESS_PAGE = REFERENCE / "access.md"
METRICS_PAGE = REFERENCE / "metrics.md"
CLIENT_METRICS_PAGE = REFERENCE / "client-metrics.md"
LAYOUT = Path(__file__).parent.parent / "src" / "tidelog" / "console" / "api" / "config_groups.py"

_INTRODUCTION = """\
# Configuration

<!-- Written by scripts/generate_reference.py from the option tables. Do not edit: run `make docs`. -->

Names, types, defaults and bounds are those of Apache Kafka 4. A `server.properties` written for Kafka
starts unchanged: options that have no effect here are named in one warning, misspelt ones get a
suggestion, and bad values are refused at start.

- [Broker options](#broker-options): in the properties file, or on the command line as
  `tidelog start --set name=value`.
- [Topic options](#topic-options): per topic, with `tidelog topics create --config name=value` or
  `tidelog configs alter`.
- [Group options](#group-options): per consumer group, with `tidelog configs alter --group`.
- [Options without effect](#options-without-effect): known to Kafka, not honoured here.

**Changeable** says whether an option can be altered while the broker runs (`tidelog configs alter`):
*no*; *per listener*, under the name `listener.name.<listener>.OPTION`; *per broker*; or *cluster*, for one
broker or for all at once. Precedence, highest first: a topic's or group's own config, the broker's dynamic
config, the dynamic config of all brokers, the properties file, the default.
"""

_CLIENT_INTRODUCTION = """\
# Client configuration

<!-- Written by scripts/generate_reference.py from the option tables. Do not edit: run `make docs`. -->

Names, types, defaults and bounds are those of Apache Kafka 4's Java clients; where a default differs, the
table says so. Options are given as keyword arguments, as a mapping in Kafka's names, or both (keyword
arguments win):

```python
Producer(bootstrap_servers="127.0.0.1:9092", linger_ms=20)
Producer({"bootstrap.servers": "127.0.0.1:9092", "linger.ms": "20"})
```

Values may be text, as in a properties file, or Python's own numbers, booleans and lists; `None` means "not
set". A misspelt name is refused with the one that was meant, and so is an option of another client. Options
that only Java needs are warned about once.

- [Producer](#producer), [Consumer](#consumer), [Admin](#admin)
- [Options from before Kafka 0.9](#options-from-before-kafka-09)
- [Options without effect](#options-without-effect)
"""

_OLD_OPTIONS_INTRODUCTION = """\
A properties file that was written for Kafka 0.8 works as it is: these names are accepted with one warning
that names the current options. A current option and an old name for it in the same file are refused. Of two
old names for the same option, the first in this table counts. An old option of another kind of client has no
effect.
`zookeeper.connect` has the client find the brokers in ZooKeeper, as
`bootstrap.servers=zookeeper://zk1:2181;zk2:2181/chroot` does.
"""

_CASSANDRA_INTRODUCTION = """\
# Options for Cassandra

<!-- Written by scripts/generate_reference.py from the option table. Do not edit: run `make docs`. -->

Of `tidelog pipeline run` and `backfill` with `--cassandra`: in a properties file (`--cassandra-config FILE`),
or one by one (`--cassandra-set NAME=VALUE`, which wins). What they mean for tables and for exactness is said
in [the pipelines' page on Cassandra](../pipelines/cassandra.md). A misspelt name is refused with the one that
was meant, and a wrong value before Spark is started.
"""

_METRICS_INTRODUCTION = """\
# Metrics

<!-- Written by scripts/generate_reference.py from tidelog.metrics.catalog. Do not edit: run `make docs`. -->

A broker tells of itself over HTTP where `metrics.listeners` names an address (`tidelog start --metrics
127.0.0.1:9404`), and nowhere otherwise:

- `/metrics`: everything below, as Prometheus' text, or as OpenMetrics where the `Accept` header asks for it.
- `/telemetry`: what clients have pushed of their own figures (KIP-714), by client, as JSON.
- `/live`: 200 while the process answers.
- `/ready`: 200 while the broker serves, its replicas are in sync and no log directory has failed; else
  503, and why.

Nobody has to log in there, so let only those reach the address who may know. Names are those of the JMX
exporter's example rules and of Strimzi's classic ones, so that dashboards and alerts made for Apache Kafka
find what they ask for. `tidelog.metrics.names=reporter` gives the names of Strimzi's Metrics Reporter
instead, where they differ: the column *reporter* says how.

`tidelog metrics dashboards DIR` writes dashboards for Grafana ({dashboards}) and {alerts} alert rules for
Prometheus.

Counters begin at the start of the broker. Quantiles of request times are of the last two to five minutes,
those of other times since the start; both are exact to an eighth of their value. Requests that came together
on a connection are handled together, and each is said to have taken the same part of that time. Figures that
have no meaning in Python (`jvm_...`) are left out; `process_...` is there. What clients push comes besides,
under names that begin with `kafka_client_`. `tidelog.otlp.endpoint` sends all of it to an OpenTelemetry
collector under the same names.
"""

_ACCESS_INTRODUCTION = """\
# What is checked where

<!-- Written by scripts/generate_reference.py from access/required_access. Do not edit: run `make docs`. -->

The operations that each request requires when an [authorizer](../how-to/security.md#access-control) is
configured. READ, WRITE, DELETE and ALTER include DESCRIBE; ALTER_CONFIGS includes DESCRIBE_CONFIGS. A missing
permission returns TOPIC_AUTHORIZATION_FAILED (29), GROUP_AUTHORIZATION_FAILED (30),
CLUSTER_AUTHORIZATION_FAILED (31) or TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53), by the type of the resource,
for the whole request unless the last column says otherwise.
"""

_CHANGEABLE = {"read-only": "no", "per-broker": "per broker", "cluster-wide": "cluster"}


def _changeable(option: Option) -> str:
    if option in TLS_OPTIONS and option.dynamic != "read-only":
        return "per listener" if option.name in RECONFIGURABLE else "no"
    return _CHANGEABLE[option.dynamic]


def render() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, "## Broker options\n"]
    for subject, options in SUBJECTS.items():
        parts.append(f"### {subject}\n")
        parts.append(_broker_table(options))
    parts.append("## Topic options\n")
    parts.append(
        "The default of a topic option is the value of the broker option named beside it, the first of them "
        "that is set.\n"
    )
    for subject, options in TOPIC_SUBJECTS.items():
        parts.append(f"### Topic: {subject.lower()}\n")
        parts.append(_topic_table(options))
    parts.append("## Group options\n")
    parts.append(
        "For groups of the consumer protocol, within the bounds that the broker options "
        "`group.consumer.min.…` and `group.consumer.max.…` set.\n"
    )
    parts.append(_group_table())
    without_effect = ", ".join(f"`{each.name}`" for each in OTHER_OPTIONS)
    parts.append(f"Taken and kept without effect, as there are no such groups here: {without_effect}.\n")
    parts.append("## Options without effect\n")
    for group in UNSUPPORTED:
        parts.append(f"### {group.subject}\n")
        parts.append(group.reason + "\n")
        parts.append(", ".join(f"`{name}`" for name in group.names) + "\n")
    return "\n".join(parts)


def render_clients() -> str:
    """The whole page about clients; what all share is listed with each, so that nobody has to look twice."""
    parts = [_CLIENT_INTRODUCTION]
    for title, subjects in (
        ("Producer", producer.SUBJECTS),
        ("Consumer", consumer.SUBJECTS),
        ("Admin", admin.SUBJECTS),
    ):
        parts.append(f"## {title}\n")
        parts.extend(_client_tables(title, subjects))
    parts.append("## Options from before Kafka 0.9\n")
    parts.append(_OLD_OPTIONS_INTRODUCTION)
    parts.append(_old_options_table())
    parts.append("## Options without effect\n")
    for group in unsupported_by_clients.UNSUPPORTED:
        parts.append(f"### {group.subject}\n")
        parts.append(group.reason + "\n")
        parts.append(", ".join(f"`{name}`" for name in group.names) + "\n")
    return "\n".join(parts)


def render_cassandra() -> str:
    """The page of the pipelines' options for Cassandra."""
    lines = ["| Option | Type | Default | Allowed | What it does |", "|---|---|---|---|---|"]
    lines += [
        _row(
            (
                f"`{each.name}`",
                each.type.name.lower(),
                _default(each),
                each.bounds() or "any",
                _prose(each.doc),
            )
        )
        for each in CASSANDRA_OPTIONS.values()
    ]
    return "\n".join([_CASSANDRA_INTRODUCTION, *lines]) + "\n"


def render_metrics() -> str:
    """The page of figures."""
    dashboards = ", ".join(each.name for each in DASHBOARDS)
    lines = [_METRICS_INTRODUCTION.format(dashboards=dashboards, alerts=len(ALERTS))]
    pipelines = ("Pipelines (`tidelog pipeline run --metrics`)", PIPELINE_FAMILIES)
    for title, section in (*SECTIONS, pipelines):
        lines += [
            f"## {title}",
            "",
            "| Name | Kind | Labels | What it tells | reporter |",
            "|---|---|---|---|---|",
        ]
        for metric in section:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            newer = "" if metric.newer_name == metric.name else f"`{metric.newer_name}`"
            lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} | {newer} |")
        lines.append("")
    lines += ["## Alerts", "", "| Alert | Fires when | For | Severity |", "|---|---|---|---|"]
    for alert in ALERTS:
        expr = alert.expr.replace("|", "\\|")
        lines.append(f"| {alert.name} | `{expr}` | {alert.for_s} s | {alert.severity} |")
    return "\n".join(lines) + "\n"


_CLIENT_METRICS_INTRODUCTION = """# Figures of the clients

Printed by `scripts/generate_reference.py` from `client/_metric_catalog.py`; do not edit. What `metrics()` of
a client returns and its reporters receive, by Kafka's groups and names; see
[the Python client](client.md#metrics-and-logs). Every metric also has the tag `client-id`. A star
marks metrics that Java's clients do not have.
"""


def render_client_metrics() -> str:
    """The page of the clients' figures."""
    parts = [_CLIENT_METRICS_INTRODUCTION]
    for title, families in CLIENT_FAMILIES:
        parts.append(f"## {title}\n")
        for family in families:
            tags = f", by {', '.join(f'`{tag}`' for tag in family.tags)}" if family.tags else ""
            group = family.group.replace("{client}", "…")
            parts.append(f"### `{group}`{tags}\n")
            parts.append("| Name | What it tells |\n|---|---|")
            for figure in family.figures:
                star = "" if is_kafkas(family, figure) else " *"
                parts.append(_row((f"`{figure.name}`{star}", figure.doc)))
            parts.append("")
    parts.append("## Figures of Java's clients that are not here\n")
    parts.append("| Figures | Why |\n|---|---|")
    parts += [_row((", ".join(f"`{name}`" for name in names), why)) for names, why in WITHOUT_MEANING]
    return "\n".join(parts) + "\n"


def render_access() -> str:
    """The whole page about access, by the number of the API."""
    lines = ["| | API | Needs | Otherwise |", "|---|---|---|---|"]
    for key in sorted(REQUIRED):
        access = REQUIRED[key]
        name = "".join(word.capitalize() for word in key.name.split("_"))
        lines.append(_row((str(int(key)), name, _needs(access), access.note)))
    return "\n".join((_ACCESS_INTRODUCTION, *lines)) + "\n"


def _needs(access: Access) -> str:
    return "; ".join(map(_need, access.needs)) or "nothing"


def _need(need: Need) -> str:
    operation = (
        need.operation.name if need.instead is None else f"{need.operation.name} or {need.instead.name}"
    )
    return f"{operation} {need.kind.label}"


def _client_tables(title: str, subjects: Mapping[str, Iterable[Option]]) -> Iterable[str]:
    for subject, options in subjects.items():
        yield f"### {title}: {subject.lower()}\n"
        lines = ["| Option | Type | Default | Allowed | What it does |", "|---|---|---|---|---|"]
        lines += [
            _row(
                (
                    f"`{each.name}`",
                    each.type.name.lower(),
                    _default(each),
                    each.bounds() or "any",
                    _prose(each.doc),
                )
            )
            for each in options
        ]
        yield "\n".join(lines) + "\n"


def _old_options_table() -> str:
    lines = ["| Old option | Current option | Remark |", "|---|---|---|"]
    for each in OLD_OPTIONS:
        current = "none" if each.current is None else f"`{each.current}`"
        lines.append(_row((f"`{each.name}`", current, each.note)))
    for (name, value), now in OLD_VALUES.items():
        lines.append(_row((f"`{name}={value}`", f"`{name}={now}`", "")))
    return "\n".join(lines) + "\n"


def _broker_table(options: Iterable[Option]) -> str:
    lines = ["| Option | Type | Default | Allowed | Changeable | What it does |", "|---|---|---|---|---|---|"]
    for each in options:
        cells = (
            f"`{each.name}`",
            each.type.name.lower(),
            _default(each),
            each.bounds() or "any",
            _changeable(each),
            _prose(each.doc),
        )
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _topic_table(options: Iterable[Option]) -> str:
    lines = [
        "| Option | Type | Default | Allowed | Broker option | What it does |",
        "|---|---|---|---|---|---|",
    ]
    for each in options:
        synonyms = ", ".join(f"`{synonym.name}`" for synonym in SYNONYMS.get(each.name, ()))
        cells = (
            f"`{each.name}`",
            each.type.name.lower(),
            _default(each),
            each.bounds() or "any",
            synonyms or "none",
            _prose(each.doc),
        )
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _group_table() -> str:
    lines = ["| Option | Type | Default | Allowed | What it does |", "|---|---|---|---|---|"]
    for each in CONSUMER_OPTIONS:
        default = f"`{broker_synonym(each.name)}`"
        lines.append(
            _row(
                (f"`{each.name}`", each.type.name.lower(), default, each.bounds() or "any", _prose(each.doc))
            )
        )
    return "\n".join(lines) + "\n"


def _default(each: Option) -> str:
    if each.required:
        return "required"
    if each.default in (MAX_INT, MAX_LONG):
        return f"{each.default} (no limit)"
    text = each.render(each.default)
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"


def _prose(text: str) -> str:
    """Text without links, where brackets before parentheses are just that."""
    return text.replace("](", "]\\(")


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


_LAYOUT_INTRODUCTION = '"""The groups of options in which forms show configs, and their order in them.'
_LAYOUT = """

Written by scripts/generate_reference.py from the option tables of topics and brokers: do not edit, run
`make docs`. The console does not load the tables themselves, which are the server's.
\"\"\"

from __future__ import annotations

Groups = dict[str, tuple[str, ...]]

"""


def render_layout() -> str:
    """The console's module of groups."""
    parts = [_LAYOUT_INTRODUCTION + _LAYOUT]
    for name, subjects in (("TOPIC_GROUPS", TOPIC_SUBJECTS), ("BROKER_GROUPS", SUBJECTS)):
        parts.append(f"{name}: Groups = {{\n")
        for group, options in subjects.items():
            lines = "".join(f'        "{each.name}",\n' for each in options)
            parts.append(f'    "{group}": (\n{lines}    ),\n')
        parts.append("}\n")
    return "".join(parts)


if __name__ == "__main__":
    REFERENCE.mkdir(parents=True, exist_ok=True)
    pages = (
        (PAGE, render()),
        (CLIENT_PAGE, render_clients()),
        (CASSANDRA_PAGE, render_cassandra()),
        (ACCESS_PAGE, render_access()),
        (METRICS_PAGE, render_metrics()),
        (CLIENT_METRICS_PAGE, render_client_metrics()),
        (LAYOUT, render_layout()),
    )
    for page, text in pages:
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page.relative_to(Path.cwd()) if page.is_relative_to(Path.cwd()) else page}")
