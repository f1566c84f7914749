"""Write the pages of ``docs/reference/`` from the option tables (``make docs``).

Unit tests call :func:`render` and :func:`render_clients` and fail when the committed pages say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from tidelog.client.options import admin, consumer, producer
from tidelog.client.options import unsupported as unsupported_by_clients
from tidelog.metadata.broker_options import SUBJECTS
from tidelog.metadata.group_options import CONSUMER_OPTIONS, OTHER_OPTIONS, broker_synonym
from tidelog.metadata.topic_options import SYNONYMS, TOPIC_OPTIONS
from tidelog.metadata.unsupported_options import UNSUPPORTED
from tidelog.options import MAX_INT, MAX_LONG, Option

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"
PAGE = REFERENCE / "configuration.md"
CLIENT_PAGE = REFERENCE / "client-configuration.md"

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
- [Group options](#group-options): per consumer group, with `kafka-configs --entity-type groups` or any
  admin client.
- [Options without effect](#options-without-effect): known to Kafka, not honoured here.

**Changeable** says whether an option can be altered while the broker runs (`tidelog configs alter`):
*no*; *per broker*; or *cluster*, for one broker or for all at once. Precedence, highest first: a topic's or
group's own config, the broker's dynamic config, the dynamic config of all brokers, the properties file, the
default.
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
- [Options without effect](#options-without-effect)
"""

_CHANGEABLE = {"read-only": "no", "per-broker": "per broker", "cluster-wide": "cluster"}


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
    parts.append(_topic_table())
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
    parts.append("## Options without effect\n")
    for group in unsupported_by_clients.UNSUPPORTED:
        parts.append(f"### {group.subject}\n")
        parts.append(group.reason + "\n")
        parts.append(", ".join(f"`{name}`" for name in group.names) + "\n")
    return "\n".join(parts)


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
                    each.doc,
                )
            )
            for each in options
        ]
        yield "\n".join(lines) + "\n"


def _broker_table(options: Iterable[Option]) -> str:
    lines = ["| Option | Type | Default | Allowed | Changeable | What it does |", "|---|---|---|---|---|---|"]
    for each in options:
        cells = (
            f"`{each.name}`",
            each.type.name.lower(),
            _default(each),
            each.bounds() or "any",
            _CHANGEABLE[each.dynamic],
            each.doc,
        )
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _topic_table() -> str:
    lines = [
        "| Option | Type | Default | Allowed | Broker option | What it does |",
        "|---|---|---|---|---|---|",
    ]
    for each in TOPIC_OPTIONS.values():
        synonyms = ", ".join(f"`{synonym.name}`" for synonym in SYNONYMS.get(each.name, ()))
        cells = (
            f"`{each.name}`",
            each.type.name.lower(),
            _default(each),
            each.bounds() or "any",
            synonyms or "none",
            each.doc,
        )
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _group_table() -> str:
    lines = ["| Option | Type | Default | Allowed | What it does |", "|---|---|---|---|---|"]
    for each in CONSUMER_OPTIONS:
        default = f"`{broker_synonym(each.name)}`"
        lines.append(
            _row((f"`{each.name}`", each.type.name.lower(), default, each.bounds() or "any", each.doc))
        )
    return "\n".join(lines) + "\n"


def _default(each: Option) -> str:
    if each.default in (MAX_INT, MAX_LONG):
        return f"{each.default} (no limit)"
    text = each.render(each.default)
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for page, text in ((PAGE, render()), (CLIENT_PAGE, render_clients())):
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page.relative_to(Path.cwd()) if page.is_relative_to(Path.cwd()) else page}")
