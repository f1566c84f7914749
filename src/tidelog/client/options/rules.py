"""Rules between options: what one value means for another, by kind of client.

Each rule takes the typed values and the names that the user has set, and either changes values that were
not set or raises ``ConfigError`` with the mend. They are Kafka's.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection
from typing import Any

from tidelog.client.options.security import MECHANISMS
from tidelog.errors import ConfigError
from tidelog.options import MAX_INT

logger = logging.getLogger(__name__)

Rule = Callable[[dict[str, Any], Collection[str]], None]

_MAX_IN_FLIGHT_FOR_IDEMPOTENCE = 5
_numbers = {kind: itertools.count(1) for kind in ("producer", "consumer", "adminclient")}


def _servers_are_given(values: dict[str, Any], given: Collection[str]) -> None:
    if not values["bootstrap.servers"]:
        raise ConfigError("bootstrap.servers is not set: name at least one broker as host:port")


def _reconnect_pause_grows_only_if_told(values: dict[str, Any], given: Collection[str]) -> None:
    if "reconnect.backoff.ms" in given and "reconnect.backoff.max.ms" not in given:
        values["reconnect.backoff.max.ms"] = values["reconnect.backoff.ms"]


def _retry_pause_has_room(values: dict[str, Any], given: Collection[str]) -> None:
    if values["retry.backoff.ms"] > values["retry.backoff.max.ms"]:
        logger.warning(
            "retry.backoff.ms=%d is above retry.backoff.max.ms=%d, which counts: the pause will not grow",
            values["retry.backoff.ms"],
            values["retry.backoff.max.ms"],
        )


def _words_have_one_spelling(values: dict[str, Any], given: Collection[str]) -> None:
    values["security.protocol"] = values["security.protocol"].upper()
    values["metadata.recovery.strategy"] = values["metadata.recovery.strategy"].lower()
    if "group.protocol" in values:
        values["group.protocol"] = values["group.protocol"].lower()


def _login_is_possible(values: dict[str, Any], given: Collection[str]) -> None:
    if not values["security.protocol"].startswith("SASL"):
        return
    mechanism = values["sasl.mechanism"]
    if mechanism not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise ConfigError(f"sasl.mechanism={mechanism} is not supported: set it to one of {known}")
    if values["sasl.tokenauth"] and not str(mechanism).startswith("SCRAM"):
        raise ConfigError(
            f"sasl.tokenauth has no meaning for sasl.mechanism={mechanism}: with a delegation token one logs "
            "in by SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    if mechanism == "OAUTHBEARER":
        if not callable(values["sasl.login.callback.handler.class"]):
            raise ConfigError(
                "sasl.mechanism=OAUTHBEARER needs a function that returns a token: "
                "set sasl.login.callback.handler.class"
            )
    elif mechanism == "GSSAPI":
        if not values["sasl.kerberos.service.name"] and not values["sasl.jaas.config"]:
            raise ConfigError(
                "sasl.mechanism is GSSAPI (Kerberos, Kafka's default), which needs the name of the brokers' "
                "service: set sasl.kerberos.service.name, or sasl.mechanism to one of "
                + ", ".join(each for each in MECHANISMS if each != mechanism)
            )
    elif not values["sasl.jaas.config"] and not (values["sasl.username"] and values["sasl.password"]):
        raise ConfigError(
            f"sasl.mechanism={mechanism} needs a user: set sasl.username and sasl.password, or "
            f"sasl.jaas.config"
        )


def _one_call_has_time_for_one_request(values: dict[str, Any], given: Collection[str]) -> None:
    call, request = values["default.api.timeout.ms"], values["request.timeout.ms"]
    if call < request:
        if "default.api.timeout.ms" not in given:
            values["default.api.timeout.ms"] = request
        elif "request.timeout.ms" not in given:
            values["request.timeout.ms"] = call
        else:
            raise ConfigError(
                f"default.api.timeout.ms={call} must be no smaller than request.timeout.ms={request}: lower "
                "request.timeout.ms, or leave it out"
            )


def _idempotence_holds(values: dict[str, Any], given: Collection[str]) -> None:
    values["acks"] = "-1" if values["acks"] == "all" else values["acks"]
    if not values["enable.idempotence"]:
        return
    asked_for = "enable.idempotence" in given or values["transactional.id"] is not None
    for name, fits, mend in (
        ("retries", values["retries"] != 0, "set retries to more than 0"),
        ("acks", values["acks"] == "-1", "set acks to all"),
    ):
        if fits:
            continue
        if asked_for:
            raise ConfigError(
                f"an idempotent producer cannot have {name}={values[name]}: {mend}, or enable.idempotence "
                f"to false"
            )
        logger.info("enable.idempotence is off because %s is %s", name, values[name])
        values["enable.idempotence"] = False
        return
    in_flight = values["max.in.flight.requests.per.connection"]
    if in_flight > _MAX_IN_FLIGHT_FOR_IDEMPOTENCE:
        raise ConfigError(
            f"an idempotent producer cannot have max.in.flight.requests.per.connection={in_flight}: "
            f"set it to at most {_MAX_IN_FLIGHT_FOR_IDEMPOTENCE}, or enable.idempotence to false"
        )


def _transactions_are_idempotent(values: dict[str, Any], given: Collection[str]) -> None:
    if values["transactional.id"] is not None and not values["enable.idempotence"]:
        raise ConfigError("transactional.id needs enable.idempotence=true: leave enable.idempotence out")


def _delivery_has_time_for_one_request(values: dict[str, Any], given: Collection[str]) -> None:
    linger, request = values["linger.ms"], values["request.timeout.ms"]
    least = min(linger + request, MAX_INT)
    if values["delivery.timeout.ms"] >= least:
        return
    if "delivery.timeout.ms" in given:
        raise ConfigError(
            f"delivery.timeout.ms={values['delivery.timeout.ms']} must be no smaller than "
            f"linger.ms + request.timeout.ms, which is {least}"
        )
    values["delivery.timeout.ms"] = least


def _commits_need_a_group(values: dict[str, Any], given: Collection[str]) -> None:
    if values["group.id"] is not None:
        return
    if "enable.auto.commit" in given and values["enable.auto.commit"]:
        raise ConfigError("enable.auto.commit=true needs a group: set group.id, or leave it out")
    values["enable.auto.commit"] = False


def _options_fit_the_group_protocol(values: dict[str, Any], given: Collection[str]) -> None:
    protocol = values["group.protocol"]
    foreign = {
        "classic": ("group.remote.assignor",),
        "consumer": ("partition.assignment.strategy", "heartbeat.interval.ms", "session.timeout.ms"),
    }[protocol]
    if wrong := [name for name in foreign if name in given and values[name] not in (None, "", ())]:
        raise ConfigError(f"{', '.join(wrong)} cannot be set when group.protocol={protocol}: leave it out")


def _heartbeats_are_in_time(values: dict[str, Any], given: Collection[str]) -> None:
    beat, session = values["heartbeat.interval.ms"], values["session.timeout.ms"]
    if values["group.protocol"] == "classic" and beat >= session:
        raise ConfigError(
            f"heartbeat.interval.ms={beat} must be below session.timeout.ms={session}; a third of it is usual"
        )


def _clients_have_names(values: dict[str, Any], given: Collection[str]) -> None:
    if values["client.id"]:
        return
    if "transactional.id" in values:
        values["client.id"] = f"producer-{values['transactional.id'] or next(_numbers['producer'])}"
    elif "group.id" in values:
        member = values["group.instance.id"] or next(_numbers["consumer"])
        group = values["group.id"]
        values["client.id"] = f"consumer-{group}-{member}" if group is not None else f"consumer-{member}"
    else:
        values["client.id"] = f"adminclient-{next(_numbers['adminclient'])}"


_COMMON: tuple[Rule, ...] = (
    _servers_are_given,
    _words_have_one_spelling,
    _login_is_possible,
    _reconnect_pause_grows_only_if_told,
    _retry_pause_has_room,
)

PRODUCER_RULES: tuple[Rule, ...] = (
    *_COMMON,
    _idempotence_holds,
    _transactions_are_idempotent,
    _delivery_has_time_for_one_request,
    _clients_have_names,
)
CONSUMER_RULES: tuple[Rule, ...] = (
    *_COMMON,
    _one_call_has_time_for_one_request,
    _options_fit_the_group_protocol,
    _heartbeats_are_in_time,
    _commits_need_a_group,
    _clients_have_names,
)
ADMIN_RULES: tuple[Rule, ...] = (*_COMMON, _one_call_has_time_for_one_request, _clients_have_names)
