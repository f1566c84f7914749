"""Every API, asked by users who lack one of the rules it needs: Tidelog answers as Apache Kafka does.

Error codes and what is hidden, field by field; sentences of refusals are ours. Users log in by SASL/PLAIN,
and a superuser makes rules and takes them away over another listener.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog, free_port
from tests.compat.access.between_brokers import BETWEEN_BROKERS
from tests.compat.access.older import LACKS, otherwise
from tests.compat.access.older import VERSIONS as VERSIONS_OF_3_9
from tests.compat.access.table import TABLE, Access, Ground
from tests.compat.access.user_side import USERS, UserSide, allow, options, taken_back, user
from tests.compat.conftest import available
from tests.compat.mixed_cluster import MixedCluster
from tests.compat.side_by_side.compare import differences
from tests.compat.side_by_side.side import UNKNOWN_ID, Side
from tests.compat.test_side_by_side import OPTIONS

from tidelog.broker.access.required_access import REQUIRED
from tidelog.ids import Uuid

_HEX = re.compile(r"(?!0{32})[0-9a-f]{32}")
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACL = "kafka.security.authorizer.AclAuthorizer"


class Guarded(NamedTuple):
    """A broker with an authorizer."""

    admin: Side
    users_port: int


class Both(NamedTuple):
    """Tidelog and the Apache Kafka beside it."""

    generation: str
    tidelog: Guarded
    apache: Guarded


def _start(running: BrokerProcess, users_port: int) -> Guarded:
    running.start()
    return _prepared(running, users_port)


def _prepared(running: BrokerProcess, users_port: int) -> Guarded:
    return Guarded(Side(running.label, "127.0.0.1", running.port).prepare(coordinators=True), users_port)


@contextmanager
def _alone(directory: Path) -> Iterator[Both]:
    """Brokers with their metadata in themselves: Apache Kafka 4 and Tidelog's store."""
    ours_port, theirs_port = free_port(), free_port()
    tidelog = Tidelog(directory / "tidelog")
    tidelog.options = {**OPTIONS, **options(STANDARD, tidelog.address, f"127.0.0.1:{ours_port}")}
    apache = ApacheKafka(directory / "apache")
    guarded = options(STANDARD, apache.address, f"127.0.0.1:{theirs_port}")
    guarded["listeners"] += f",CONTROLLER://127.0.0.1:{apache.controller_port}"
    protocols = ("CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SASL_PLAINTEXT:SASL_PLAINTEXT")
    apache.options = {**OPTIONS, **guarded, "listener.security.protocol.map": ",".join(protocols)}
    try:
        yield Both("kafka-4", _start(tidelog, ours_port), _start(apache, theirs_port))
    finally:
        tidelog.stop()
        apache.stop()


@contextmanager
def _on_zookeeper(directory: Path) -> Iterator[Both]:
    """Each on a ZooKeeper of its own: Apache Kafka 3.9 and Tidelog."""
    ours_port, theirs_port = free_port(), free_port()
    with (
        MixedCluster(directory / "ours", OPTIONS) as ours,
        MixedCluster(directory / "theirs", OPTIONS) as theirs,
    ):
        tidelog = ours.tidelog(1, lambda address: options(ACL, address, f"127.0.0.1:{ours_port}"))
        apache = theirs.kafka(1, lambda address: options(ACL, address, f"127.0.0.1:{theirs_port}"))
        yield Both("kafka-3.9", _prepared(tidelog, ours_port), _prepared(apache, theirs_port))


GENERATIONS = {"kafka-4": _alone, "kafka-3.9": _on_zookeeper}
TABLES = {"kafka-4": TABLE, "kafka-3.9": (*TABLE, *BETWEEN_BROKERS)}


class Running:
    """The brokers of one generation at a time, started when they are first asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._both: Both | None = None
        self._started = ExitStack()

    def of(self, generation: str) -> Both:
        if self._both is None or self._both.generation != generation:
            self.stop()
            brokers = GENERATIONS[generation](self._directory / generation)
            self._both = self._started.enter_context(brokers)
        return self._both

    def stop(self) -> None:
        self._both = None
        self._started.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Not a fixture with a parameter: pytest would start brokers for each case that it runs."""
    with available():
        brokers = Running(tmp_path_factory.mktemp("access"))
        yield brokers
        brokers.stop()


def _is_new_id(name: str, value: object) -> bool:
    return name == "topic_id" and _HEX.fullmatch(str(value)) is not None


def _comparable(answer: object, apart: frozenset[str]) -> object:
    """Without sentences, which are ours to write, and without the order of Kafka's hash maps."""
    if isinstance(answer, dict):
        return {
            name: "a new id"
            if name == "topic_id" and _HEX.fullmatch(str(value))
            else _comparable(value, apart)
            for name, value in answer.items()
            if name != "error_message" and name not in apart
        }
    if isinstance(answer, list):
        return sorted((_comparable(each, apart) for each in answer), key=str)
    return answer


class Case(NamedTuple):
    """A request of somebody who has some of the rules that it needs."""

    name: str
    access: Access
    held: tuple[int, ...]
    """By their numbers."""


def _variants(access: Access) -> Iterator[Case]:
    """Somebody who has all rules that are needed, each that lacks one, and one who has none."""
    every = tuple(range(len(access.needs)))
    yield Case(f"{access.name}-all", access, every)
    if len(every) > 1:
        for missing in every:
            held = tuple(each for each in every if each != missing)
            yield Case(f"{access.name}-without-{missing}", access, held)
    yield Case(f"{access.name}-none", access, ())


CASES = [
    pytest.param(generation, case, id=f"{generation}-{case.name}")
    for generation, table in TABLES.items()
    for access in table
    for case in _variants(access)
]


def _ask(both: Both, guarded: Guarded, access: Access, held: tuple[int, ...], number: int) -> object:
    admin = guarded.admin.begin(f"access-{number}")
    older = both.generation == "kafka-3.9"
    version = VERSIONS_OF_3_9.get(access.name, access.version) if older else access.version
    with admin:
        ground = Ground(admin)
        access.before(ground)
        name = user(number % USERS)
        rules = [(rule.kind, ground.name_of(rule.stem), rule.operation) for rule in access.needs]
        with taken_back(admin, name):
            allow(admin, name, [rules[each] for each in held])
            somebody = UserSide(admin, guarded.users_port, name)
            try:
                return access.shown(somebody.ask(version, access.request(ground)))
            finally:
                somebody.reconnect()
                access.after(ground)


_numbers = itertools.count(1)


@pytest.mark.parametrize(("generation", "case"), CASES)
def test_who_lacks_a_rule_is_answered_as_apache_kafka_does(
    running: Running, generation: str, case: Case
) -> None:
    both = running.of(generation)
    number = next(_numbers)
    theirs = _ask(both, both.apache, case.access, case.held, number)
    if both.generation == "kafka-3.9" and case.access.name in LACKS:
        assert str(LACKS[case.access.name]) in str(theirs)
        return
    ours = _ask(both, both.tidelog, case.access, case.held, number)
    apart = otherwise(case.name) if both.generation == "kafka-3.9" else frozenset()
    found = differences(_comparable(ours, apart), _comparable(theirs, apart))
    shown = "\n".join(f"{path}\n  ours   {mine!r}\n  apache {them!r}" for path, (mine, them) in found.items())
    assert not found, f"{case.name}\n{shown}"


@pytest.mark.parametrize("generation", list(reversed(GENERATIONS)))
def test_each_request_is_refused_to_somebody_without_rules(running: Running, generation: str) -> None:
    """The table is worth something: what one needs is what makes the difference, on Kafka."""
    both = running.of(generation)
    same = []
    lacking = LACKS if both.generation == "kafka-3.9" else {}
    for access in TABLES[both.generation]:
        every = tuple(range(len(access.needs)))
        answers = set()
        for held in (every, ()):
            number = next(_numbers)
            answer = str(_ask(both, both.apache, access, held, number))
            answers.add(answer.replace(f"access-{number}-", ""))
        if len(answers) == 1 and access.name not in lacking:
            same.append(access.name)
    assert same == []


def test_every_api_that_needs_a_rule_is_asked() -> None:
    ground = Ground.__new__(Ground)
    ground.admin = Unasked("nobody", "127.0.0.1", 0)
    ground.topic = ground.other = ground.missing = ground.group = ground.transaction = "x"
    ground.topic_id = UNKNOWN_ID
    asked = {access.request(ground).API_KEY for access in (*TABLE, *BETWEEN_BROKERS)}
    assert {api for api, access in REQUIRED.items() if access.needs} <= asked


class Unasked(Side):
    """No broker at all: requests are made, and not sent."""

    def topic_id(self, name: str) -> Uuid:
        return UNKNOWN_ID
