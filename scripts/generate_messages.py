"""Write ``src/tidelog/wire/messages`` and ``src/tidelog/wire/internal_topics`` from Kafka's specifications.

    python scripts/generate_messages.py [--check] kafka-clients-4.3.1.jar \\
        kafka-group-coordinator-4.3.1.jar kafka-transaction-coordinator-4.3.1.jar kafka-clients-3.9.2.jar

What several of them specify is taken from the first: the last jar gives only what Kafka 4 dropped, the
requests by which a controller in ZooKeeper mode steers its brokers. The specifications are the JSON files
``common/message/*.json`` that these jars carry and that lie in ``src/main/resources`` of Kafka's sources;
directories of them do as well. They are read, never kept here.
``--check`` compares instead of writing, and fails when something differs.

Each module ends with a checksum of itself, so that a unit test notices edits by hand; the contents are
tested per version against another implementation of the protocol.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WIRE = Path(__file__).resolve().parent.parent / "src" / "tidelog" / "wire"
LATEST = 32767

# Not here: KRaft's own traffic.
API_KEYS = frozenset(range(93)) - {52, 53, 54, 58, 59, 62, 63, 70, 73, 82}

# Of the records in internal topics, those that Tidelog's coordinators write or read.
RECORD_FAMILIES = {
    "consumer_offsets": r"(Legacy)?OffsetCommit|GroupMetadata|ConsumerGroup\w+",
    "transaction_state": r"TransactionLog",
}
RECORD_KINDS = {"coordinator-key": "Key", "coordinator-value": "Value"}
PROTOCOL_DATA = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")

PYTHON_TYPES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "uint32": "int",
    "int64": "int",
    "float64": "float",
    "string": "str",
    "uuid": "Uuid",
    "bytes": "bytes",
    "records": "bytes",
}
DEFAULTS = {"bool": "False", "float64": "0.0", "string": '""', "uuid": "ZERO_UUID", "bytes": 'b""'}


@dataclass(frozen=True)
class Range:
    """Versions from ``low`` to ``high``, both included."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str | None) -> Range | None:
        if text is None or text == "none":
            return None
        low, plus, high = re.fullmatch(r"(\d+)(\+?)(?:-(\d+))?", text).groups()  # type: ignore[union-attr]
        return cls(int(low), LATEST if plus else int(high or low))

    def clip(self, other: Range) -> Range | None:
        low, high = max(self.low, other.low), min(self.high, other.high)
        return Range(low, high) if low <= high else None


@dataclass
class FieldSpec:
    name: str
    kind: str
    array: bool
    versions: Range
    nullable: Range | None
    tag: int | None
    tagged: Range | None
    ignorable: bool
    default: str


@dataclass
class StructSpec:
    name: str
    role: str
    fields: list[FieldSpec]


@dataclass
class MessageSpec:
    name: str
    api_key: int | None
    versions: Range
    flexible_since: int
    structs: list[StructSpec] = field(default_factory=list)


def snake_case(name: str) -> str:
    """Kafka's CamelCase as Python writes it: ``ThrottleTimeMs`` is ``throttle_time_ms``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def load_specs(sources: list[Path]) -> Iterator[dict[str, Any]]:
    """Every specification in jars and directories, each from the first that has it."""
    seen: set[tuple[str, str | int]] = set()
    for source in sources:
        if source.is_dir():
            texts = [path.read_text("utf-8") for path in sorted(source.rglob("*.json"))]
        else:
            with zipfile.ZipFile(source) as jar:
                names = sorted(n for n in jar.namelist() if re.fullmatch(r"common/message/\w+\.json", n))
                texts = [jar.read(name).decode("utf-8") for name in names]
        for text in texts:
            spec = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
            # An API that was dropped keeps its specification, with no valid versions.
            on_the_wire = spec["type"] in ("request", "response")
            known_by = (spec["type"], spec["apiKey"] if on_the_wire else spec["name"])
            if known_by not in seen and spec.get("validVersions") != "none":
                seen.add(known_by)
                yield spec


class MessageReader:
    """Turns one JSON specification into a :class:`MessageSpec`, innermost structures first."""

    def __init__(self, raw: dict[str, Any]) -> None:
        versions = Range.parse(raw["validVersions"])
        if versions is None:
            raise ValueError(f"{raw['name']} has no valid versions")
        flexible = Range.parse(raw.get("flexibleVersions"))
        since = flexible.low if flexible else LATEST
        self.message = MessageSpec(raw["name"], raw.get("apiKey"), versions, since)
        self.common = {struct["name"]: struct for struct in raw.get("commonStructs", [])}
        self.done: set[str] = set()
        self.read_struct(raw["name"], f"{role_of(raw)}, {spoken(versions)}.", raw, versions)

    def read_struct(self, name: str, role: str, raw: dict[str, Any], outer: Range) -> None:
        self.done.add(name)
        fields = [self.read_field(name, each, outer) for each in raw["fields"]]
        self.message.structs.append(StructSpec(name, role, [each for each in fields if each is not None]))

    def read_field(self, owner: str, raw: dict[str, Any], outer: Range) -> FieldSpec | None:
        present = Range.parse(raw.get("versions", raw.get("taggedVersions")))
        versions = present.clip(outer) if present else None
        if versions is None:
            return None
        array = raw["type"].startswith("[]")
        kind = raw["type"].removeprefix("[]")
        name = snake_case(raw["name"])
        if kind not in PYTHON_TYPES and kind not in self.done:
            inner = raw if "fields" in raw else self.common[kind]
            # A structure used in several places must know every version any of them has.
            reach = self.message.versions if kind in self.common else versions
            part = "One element of" if array else "The value of"
            self.read_struct(kind, f"{part} ``{owner}.{name}``.", inner, reach)
        nullable = Range.parse(raw.get("nullableVersions"))
        nullable = nullable.clip(versions) if nullable else None
        return FieldSpec(
            name=name,
            kind=kind,
            array=array,
            versions=versions,
            nullable=nullable,
            tag=raw.get("tag"),
            tagged=Range.parse(raw.get("taggedVersions")),
            ignorable=raw.get("ignorable") in (True, "true"),
            default=default_of(kind, array, given_default(raw), nullable is not None),
        )


def role_of(raw: dict[str, Any]) -> str:
    if raw["type"] in RECORD_KINDS:
        return f"{RECORD_KINDS[raw['type']]} of records of type {raw['apiKey']}"
    return "Opaque bytes in requests" if raw["type"] == "data" else f"{raw['type'].capitalize()} body"


def spoken(versions: Range) -> str:
    if versions.low == versions.high:
        return f"version {versions.low}"
    return f"versions {versions.low} to {versions.high}"


def given_default(raw: dict[str, Any]) -> object:
    """The default as the specification gives it; null is a string there, JSON's own means none in Kafka."""
    return raw.get("default")


def default_of(kind: str, array: bool, given: object, nullable: bool) -> str:
    """The default as Python source."""
    if given == "null":
        return "None"
    if array:
        return "[]"
    if kind == "records":
        return "None" if nullable else 'b""'
    if kind not in PYTHON_TYPES:
        return f"msgspec.field(default_factory={kind})"
    if given is None:
        return DEFAULTS.get(kind, "0")
    if kind == "bool":
        return "True" if str(given).lower() == "true" else "False"
    if kind == "string":
        return json.dumps(given)
    if kind == "float64":
        return repr(float(str(given)))
    if PYTHON_TYPES[kind] == "int":
        return repr(int(str(given), 0))
    raise ValueError(f"no rule for the default {given!r} of a {kind}")


def merge_names(messages: list[MessageSpec]) -> None:
    """Give structures of request and response that share a name but not a shape their message's prefix."""
    request, response = messages
    theirs = {struct.name: struct for struct in response.structs}
    for struct in list(request.structs):
        name = struct.name
        twin = theirs.get(name)
        if twin is None:
            continue
        if twin.fields == struct.fields and same_shape(request, response, struct):
            response.structs.remove(twin)
            struct.role = f"One structure of both {request.name} and {response.name}."
            continue
        for message in messages:
            rename(message, name, message.name + name)


def same_shape(request: MessageSpec, response: MessageSpec, struct: StructSpec) -> bool:
    return request.flexible_since == response.flexible_since and all(
        each.kind in PYTHON_TYPES for each in struct.fields
    )


def rename(message: MessageSpec, old: str, new: str) -> None:
    for struct in message.structs:
        if struct.name == old:
            struct.name = new
        struct.role = struct.role.replace(f"``{old}.", f"``{new}.")
        for each in struct.fields:
            if each.kind == old:
                each.kind = new
                each.default = each.default.replace(f"={old})", f"={new})")


def render_field(spec: FieldSpec, struct_versions: Range) -> str:
    """One ``Field(...)`` expression; what equals the defaults of ``Field`` is left out."""
    parts = [repr(spec.name), repr(spec.kind) if spec.kind in PYTHON_TYPES else spec.kind]
    if spec.array:
        parts.append("array=True")
    if spec.versions.low > struct_versions.low:
        parts.append(f"since={spec.versions.low}")
    if spec.versions.high < struct_versions.high:
        parts.append(f"until={spec.versions.high}")
    if spec.nullable:
        parts.append(f"nullable_since={spec.nullable.low}")
        if spec.nullable.high < spec.versions.high:
            parts.append(f"nullable_until={spec.nullable.high}")
    if spec.tag is not None and spec.tagged is not None:
        parts.append(f"tag={spec.tag}, tagged_since={spec.tagged.low}")
    if spec.ignorable:
        parts.append("ignorable=True")
    return f"Field({', '.join(parts)})"


def render_struct(message: MessageSpec, struct: StructSpec) -> str:
    base = "Payload" if struct.name == message.name else "Message"
    lines = [f"class {struct.name}({base}, kw_only=True):", f'    """{struct.role}"""', ""]
    for each in struct.fields:
        kind = PYTHON_TYPES.get(each.kind, each.kind)
        annotation = f"list[{kind}]" if each.array else kind
        if each.nullable or each.default == "None":
            annotation += " | None"
        lines.append(f"    {each.name}: {annotation} = {each.default}")
    lines.append("")
    if base == "Payload":
        if message.api_key is not None:
            lines.append(f"    API_KEY = {message.api_key}")
        lines.append(f"    VERSIONS = ({message.versions.low}, {message.versions.high})")
        since = message.flexible_since
        lines.append(f"    FLEXIBLE_SINCE = {'LATEST' if since == LATEST else since}")
    if struct.fields:
        rows = "".join(f"        {render_field(each, message.versions)},\n" for each in struct.fields)
        lines.append(f"    FIELDS = (\n{rows}    )")
    return "\n".join(lines)


def render_module(title: str, messages: list[MessageSpec]) -> str:
    body = "\n\n\n".join(render_struct(m, struct) for m in messages for struct in m.structs)
    schema_names = [n for n in ("LATEST", "Field", "Message", "Payload") if re.search(rf"\b{n}\b", body)]
    id_names = [n for n in ("ZERO_UUID", "Uuid") if re.search(rf"\b{n}\b", body)]
    head = [
        f'"""{title}',
        "",
        "Generated by scripts/generate_messages.py from Kafka's message specifications; do not edit.",
        '"""',
        "",
    ]
    if " = []" in body:
        head += ["# ruff: noqa: RUF012 (msgspec gives every instance an empty list of its own)", ""]
    head += ["from __future__ import annotations", ""]
    if "msgspec." in body:
        head += ["import msgspec", ""]
    if id_names:
        head.append(f"from tidelog.ids import {', '.join(id_names)}")
    head.append(f"from tidelog.wire.schema import {', '.join(schema_names)}")
    return "\n".join(head) + "\n\n\n" + body + "\n"


def formatted(source: str) -> str:
    """The source as the project's formatter leaves it, with its checksum as the last line."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(WIRE / "any.py"), "-"]
    run = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    digest = hashlib.sha256(run.stdout.encode("utf-8")).hexdigest()
    return f"{run.stdout}\n\n# sha256 of the above: {digest}\n"


def generate(sources: list[Path]) -> dict[str, str]:
    """Path below ``wire`` to contents, for every API and every internal topic."""
    specs = list(load_specs(sources))
    modules = {
        f"messages/{snake_case(api)}.py": formatted(
            render_module(
                f"{api} (API key {messages[0].api_key}): the request and the response in all their versions.",
                messages,
            )
        )
        for api, messages in requests_and_responses(specs).items()
    }
    title = "What consumers tell each other through JoinGroup and SyncGroup, behind two bytes of version."
    data = [MessageReader(raw).message for name in PROTOCOL_DATA for raw in specs if raw["name"] == name]
    modules["messages/consumer_protocol.py"] = formatted(render_module(title, apart(data)))
    for family, pattern in RECORD_FAMILIES.items():
        records = [
            MessageReader(raw).message
            for raw in sorted(specs, key=lambda raw: (raw.get("apiKey", -1), raw["name"]))
            if raw["type"] in RECORD_KINDS and re.fullmatch(f"({pattern})(Key|Value)", raw["name"])
        ]
        if not records:
            raise SystemExit(f"no source has the records of __{family}: name the coordinators' jars too.")
        title = f"Keys and values of the records in __{family}."
        modules[f"internal_topics/{family}.py"] = formatted(render_module(title, apart(records)))
    return modules


def requests_and_responses(specs: list[dict[str, Any]]) -> dict[str, list[MessageSpec]]:
    """The request and the response of every API, by its name."""
    pairs: dict[str, list[MessageSpec]] = {}
    for raw in specs:
        if raw["type"] in ("request", "response") and raw["apiKey"] in API_KEYS:
            api = raw["name"].removesuffix("Request").removesuffix("Response")
            pairs.setdefault(api, []).append(MessageReader(raw).message)
    missing = API_KEYS - {messages[0].api_key for messages in pairs.values()}
    if missing:
        raise SystemExit(f"no source has the API keys {sorted(missing)}: take a newer kafka-clients jar.")
    for messages in pairs.values():
        messages.sort(key=lambda message: message.name)
        merge_names(messages)
    return dict(sorted(pairs.items()))


def apart(messages: list[MessageSpec]) -> list[MessageSpec]:
    """Give every structure that several of the messages have under one name its message's prefix."""
    names = [struct.name for message in messages for struct in message.structs]
    for message in messages:
        for struct in message.structs:
            if names.count(struct.name) > 1:
                rename(message, struct.name, message.name + struct.name)
    return messages


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Generate tidelog.wire.messages and internal_topics from Kafka's specifications."
    )
    parser.add_argument(
        "sources", type=Path, nargs="+", help="Kafka's client and coordinator jars, or directories of JSON"
    )
    parser.add_argument("--check", action="store_true", help="compare with the files instead of writing them")
    options = parser.parse_args()
    modules = generate(options.sources)
    here = {
        str(path.relative_to(WIRE))
        for part in ("messages", "internal_topics")
        for path in (WIRE / part).glob("*.py")
        if "Generated by scripts/generate_messages.py" in path.read_text()
    }
    stale = here - set(modules)
    changed = [n for n, text in modules.items() if n not in here or (WIRE / n).read_text() != text]
    if options.check:
        for name in sorted([*changed, *stale]):
            print(f"{WIRE / name} differs from the specifications")
        return 1 if changed or stale else 0
    for name in changed:
        (WIRE / name).write_text(modules[name])
    for name in stale:
        (WIRE / name).unlink()
    print(f"{len(changed)} written, {len(modules) - len(changed)} unchanged, {len(stale)} removed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
