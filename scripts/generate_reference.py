"""Write ``docs/reference/configuration.md`` from the option tables (``make docs``).

A unit test calls :func:`render` and fails when the committed page says something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidelog.metadata.broker_options import SUBJECTS
from tidelog.metadata.group_options import CONSUMER_OPTIONS, OTHER_OPTIONS, broker_synonym
from tidelog.metadata.topic_options import SYNONYMS, TOPIC_OPTIONS
from tidelog.metadata.unhonoured_options import UNHONOURED
from tidelog.options import MAX_INT, MAX_LONG, Option

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "configuration.md"

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
    for group in UNHONOURED:
        parts.append(f"### {group.subject}\n")
        parts.append(group.reason + "\n")
        parts.append(", ".join(f"`{name}`" for name in group.names) + "\n")
    return "\n".join(parts)


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
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE}")
