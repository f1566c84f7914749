"""Quotas of users, client ids and IP addresses: what can be set, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, nan

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.side import Side

from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from tidelog.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

EXACT, DEFAULT, ANY = 0, 1, 2
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION, CONNECTION = "request_percentage", "controller_mutation_rate", "connection_creation_rate"

Entity = Mapping[str, str | None]
Ops = Sequence[tuple[str, float | None]]


def entry(entity: Entity | Sequence[tuple[str, str | None]], ops: Ops) -> AlterClientQuotasRequestEntryData:
    """What a request says about one entity; None removes a quota."""
    parts = entity.items() if isinstance(entity, Mapping) else entity
    return AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def alter(
    side: Side,
    *entries: AlterClientQuotasRequestEntryData,
    version: int = 1,
    validate_only: bool = False,
) -> object:
    """Change quotas; the answer in an order of its own."""
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return _sorted(side.ask(version, request))


def describe(side: Side, *components: ComponentData, strict: bool = False, version: int = 1) -> object:
    """List quotas, those of other cases left out."""
    answer = side.ask(version, DescribeClientQuotasRequest(components=list(components), strict=strict))
    return _sorted(answer, side.prefix)


def component(kind: str, match_type: int = EXACT, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


def _sorted(answer: object, prefix: str = "") -> object:
    if isinstance(answer, dict) and answer.get("entries"):
        found = [each for each in answer["entries"] if prefix in str(each["entity"])]
        for each in found:
            each["entity"].sort(key=str)
            if "values" in each:
                each["values"].sort(key=str)
        answer["entries"] = sorted(found, key=str)
    return answer


def _tried(side: Side, entity: Entity, ops: Ops, version: int = 1) -> object:
    """A change, and what has become of it; taken back at the end."""
    answer = alter(side, entry(entity, ops), version=version)
    side.settle()
    kind = next(iter(entity), "user")
    shown = describe(side, component(kind, ANY), version=version)
    alter(side, entry(entity, [(key, None) for key, _ in ops]))
    return answer, shown


VALUES = {
    "whole": 1024.0,
    "one": 1.0,
    "fraction": 10.5,
    "below-one": 0.25,
    "zero": 0.0,
    "negative": -1.0,
    "short": 32768.0,
    "int": 2.0**31 - 1,
    "beyond-int": 2.0**31,
    "large": 1e15,
    "long": 2.0**63,
    "beyond-long": 1e19,
    "infinite": inf,
}


@case(
    {
        f"{key}-{label}": (key, value)
        for key in (PRODUCE, REQUEST, MUTATION)
        for label, value in VALUES.items()
    }
)
def user_value(side: Side, op: tuple[str, float]) -> object:
    return _tried(side, {"user": side.name_of("u")}, [op])


@case(VALUES)
def ip_value(side: Side, value: float) -> object:
    answer = alter(side, entry({"ip": "192.0.2.7"}, [(CONNECTION, value)]))
    alter(side, entry({"ip": "192.0.2.7"}, [(CONNECTION, None)]))
    return answer


@case((PRODUCE, REQUEST))
def no_number(side: Side, key: str) -> object:
    return _tried(side, {"user": side.name_of("u")}, [(key, nan)])


@case(versions=(0, 1))
def several_quotas(side: Side, version: int) -> object:
    ops = [(PRODUCE, 1e6), (FETCH, 2e6), (REQUEST, 12.5), (MUTATION, 3.0)]
    return _tried(side, {"user": side.name_of("u"), "client-id": side.name_of("c")}, ops, version)


@case({"user": CONNECTION, "unknown": "no_such_quota", "empty": "", "scram": "SCRAM-SHA-256"})
def odd_key_of_user(side: Side, key: str) -> object:
    return _tried(side, {"user": side.name_of("u")}, [(key, 10.0)])


@case()
def odd_key_of_ip(side: Side) -> object:
    return alter(side, entry({"ip": "192.0.2.7"}, [(PRODUCE, 10.0)]))


@case()
def one_bad_of_two_quotas(side: Side) -> object:
    return _tried(side, {"user": side.name_of("u")}, [(PRODUCE, 10.0), (FETCH, -1.0)])


@case(
    {
        "nothing": (),
        "empty-user": (("user", ""),),
        "empty-client": (("client-id", ""),),
        "empty-ip": (("ip", ""),),
        "unknown-kind": (("group", "g"),),
        "empty-kind": (("", "g"),),
        "ip-and-user": (("ip", "192.0.2.1"), ("user", "u")),
        "ip-and-client": (("ip", None), ("client-id", None)),
        "bad-ip": (("ip", "no.such.host.invalid"),),
        "bad-ip-text": (("ip", "1.2.3.4.5"),),
        "kind-twice": (("user", "a"), ("user", "a")),
    }
)
def odd_entity(side: Side, parts: Sequence[tuple[str, str | None]]) -> object:
    return alter(side, entry(parts, [(PRODUCE, 10.0)]), validate_only=True)


@case({"ipv4": "192.0.2.9", "ipv6": "2001:db8::9", "name": "localhost", "default": None})
def ip_entity(side: Side, ip: str | None) -> object:
    return alter(side, entry({"ip": ip}, [(CONNECTION, 10.0)]), validate_only=True)


@case(
    {
        "space": "a b",
        "slash": "a/b",
        "star": "*",
        "percent": "50%",
        "default": "<default>",
        "umlaut": "jürgen",
    }
)
def odd_names(side: Side, name: str) -> object:
    return _tried(side, {"user": f"{side.prefix}{name}", "client-id": name}, [(PRODUCE, 10.0)])


@case()
def same_quota_twice(side: Side) -> object:
    return alter(side, entry({"user": side.name_of("u")}, [(PRODUCE, 10.0), (PRODUCE, 20.0)]))


@case()
def same_entity_twice(side: Side) -> object:
    name = side.name_of("u")
    answer = alter(side, entry({"user": name}, [(PRODUCE, 10.0)]), entry({"user": name}, [(FETCH, 20.0)]))
    alter(side, entry({"user": name}, [(PRODUCE, None)]))
    return answer


@case()
def no_entries(side: Side) -> object:
    return alter(side)


@case()
def no_ops(side: Side) -> object:
    return _tried(side, {"user": side.name_of("u")}, [])


@case({"known": PRODUCE, "unknown": "no_such_quota"})
def remove_what_is_not_there(side: Side, key: str) -> object:
    return _tried(side, {"user": side.name_of("u")}, [(key, None)])


@case()
def only_validated(side: Side) -> object:
    name = side.name_of("u")
    answer = alter(side, entry({"user": name}, [(PRODUCE, 10.0)]), validate_only=True)
    return answer, describe(side, component("user", EXACT, name))


@case()
def one_good_and_one_bad_entity(side: Side) -> object:
    good, bad = {"user": side.name_of("good")}, {"user": side.name_of("bad")}
    answer = alter(side, entry(good, [(PRODUCE, 10.0)]), entry(bad, [(PRODUCE, 0.5)]))
    side.settle()
    shown = describe(side, component("user", ANY))
    alter(side, entry(good, [(PRODUCE, None)]))
    return answer, shown


# What filters match


def _entities(side: Side) -> list[Entity]:
    user, client = side.name_of("u"), side.name_of("c")
    return [
        {"user": user},
        {"client-id": client},
        {"user": user, "client-id": client},
        {"user": user, "client-id": None},
        {"user": None, "client-id": client},
    ]


FILTERS: dict[str, tuple[tuple[str, int, str | None], ...]] = {
    "nothing": (),
    "user": (("user", EXACT, "u"),),
    "client": (("client-id", EXACT, "c"),),
    "both": (("user", EXACT, "u"), ("client-id", EXACT, "c")),
    "any-user": (("user", ANY, None),),
    "any-client": (("client-id", ANY, None),),
    "any-both": (("user", ANY, None), ("client-id", ANY, None)),
    "default-client": (("client-id", DEFAULT, None),),
    "user-default-client": (("user", EXACT, "u"), ("client-id", DEFAULT, None)),
    "default-user": (("user", DEFAULT, None),),
    "nobody": (("user", EXACT, "nobody"),),
    "any-ip": (("ip", ANY, None),),
}


@case(
    {
        f"{label}{'-strict' if strict else ''}": (label, strict)
        for label in FILTERS
        for strict in (False, True)
    }
)
def filters(side: Side, which: tuple[str, bool]) -> object:
    label, strict = which
    everybody = _entities(side)
    alter(side, *(entry(each, [(PRODUCE, 10.0 + number)]) for number, each in enumerate(everybody)))
    side.settle()
    wanted = [
        component(kind, match_type, None if match is None else side.name_of(match))
        for kind, match_type, match in FILTERS[label]
    ]
    shown = describe(side, *wanted, strict=strict)
    alter(side, *(entry(each, [(PRODUCE, None)]) for each in everybody))
    return shown


@case(
    {
        "empty-kind": (("", ANY, None),),
        "unknown-kind": (("group", ANY, None),),
        "kind-twice": (("user", ANY, None), ("user", EXACT, "u")),
        "exact-null": (("user", EXACT, None),),
        "default-named": (("user", DEFAULT, "u"),),
        "any-named": (("user", ANY, "u"),),
        "odd-match": (("user", 9, None),),
        "ip-and-user": (("ip", ANY, None), ("user", ANY, None)),
        "ip-and-client": (("ip", EXACT, "192.0.2.1"), ("client-id", DEFAULT, None)),
    },
    versions=(0, 1),
)
def odd_filters(side: Side, wanted: Sequence[tuple[str, int, str | None]], version: int) -> object:
    return describe(side, *(component(*each) for each in wanted), version=version)
