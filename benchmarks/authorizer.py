"""What access rules cost: broker CPU per produce and fetch request, with and without an authorizer.

The requests of *request cost* go to two brokers: one without an authorizer, one with `StandardAuthorizer` and
a thousand rules, literal and prefixed, one of which allows the client. Both run at the same time and take
turns; the figure is the median of the turns. Goal: 3 %.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from foreign.broker_process import BrokerProcess

from benchmarks import request_turns
from benchmarks.contestants import make, scratch, started
from benchmarks.figures import Figures

NAME = "authorizer"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CLIENT = "User:ANONYMOUS"
OTHER_RULES = 1000
_TIMEOUT_S = 60


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with ExitStack() as stack:
        brokers = {
            "without": stack.enter_context(started(contestant, root)),
            "with rules": stack.enter_context(_guarded(contestant, root)),
        }
        turns, requests = (3, 1500) if quick else (9, 10_000)
        request_turns.compare(NAME, contestant, brokers, figures, turns=turns, requests=requests)


@contextmanager
def _guarded(name: str, root: Path) -> Iterator[BrokerProcess]:
    with scratch(root) as directory:
        broker = make(name, directory)
        try:
            # Rules are made by who needs none, who is then a client like any other.
            broker.options |= {"authorizer.class.name": AUTHORIZER, "super.users": CLIENT}
            broker.start()
            _make_rules(broker)
            broker.stop()
            broker.options["super.users"] = "User:admin"
            broker.start()
            yield broker
        finally:
            broker.kill()


def _make_rules(broker: BrokerProcess) -> None:
    allow, everything = AclPermissionType.ALLOW, AclOperation.ALL
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    rules = [
        AclBinding(ResourceType.TOPIC, "bench-", prefixed, CLIENT, "*", everything, allow),
        AclBinding(ResourceType.BROKER, "kafka-cluster", literal, CLIENT, "*", everything, allow),
    ]
    for number in range(OTHER_RULES // 2):
        who = f"User:other-{number}"
        for name, pattern in ((f"topic-{number}", literal), (f"bench-{number}-", prefixed)):
            rules.append(AclBinding(ResourceType.TOPIC, name, pattern, who, "*", AclOperation.READ, allow))
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_acls(rules).values():
        future.result(_TIMEOUT_S)
