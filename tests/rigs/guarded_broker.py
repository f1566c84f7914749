"""A broker with access control whose clients are whoever the test says, without any authentication.

    with GuardedBroker(tmp_path / "data") as broker:
        broker.allow(rule(TOPIC, "orders", Operation.READ))
        with broker.connect() as client: ...          # User:alice
        with broker.connect(ROOT) as client: ...      # a super user

Principals go by the address that a client connects from, of which 127.0.0.0/8 has many. Only in tests: the
product has no such option. Rules are put in place directly, without a request.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.rigs.raw_client import RawClient

from tidelog.broker.app import Broker
from tidelog.broker.network.connection import Connection
from tidelog.security.acls.model import (
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.security.principal import ANONYMOUS, Principal
from tidelog.security.session import Session
from tidelog.testing.broker_thread import BrokerThread

ALICE = Principal("alice")
BOB = Principal("bob")
ROOT = Principal("root")
ADDRESSES = {ROOT: "127.0.0.1", ALICE: "127.0.0.2", BOB: "127.0.0.3", ANONYMOUS: "127.0.0.4"}
_BY_ADDRESS = {address: principal for principal, address in ADDRESSES.items()}

OPTIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.two.phase.commit.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
}


def rule(
    kind: ResourceType,
    name: str,
    operation: Operation,
    *,
    principal: Principal = ALICE,
    host: str = WILDCARD,
    deny: bool = False,
    prefixed: bool = False,
) -> AclBinding:
    """An access rule."""
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    return AclBinding(
        ResourcePattern(kind, name, pattern_type), AclEntry(str(principal), host, operation, permission)
    )


class GuardedBroker:
    """A running broker; ``connect`` gives clients."""

    def __init__(self, data_dir: Path, options: Mapping[str, str] | None = None) -> None:
        self.thread = BrokerThread(data_dir, options={**OPTIONS, **(options or {})})

    def __enter__(self) -> GuardedBroker:
        self.thread.start()
        self.thread.call(name_clients)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.thread.stop()

    def connect(self, principal: Principal = ALICE) -> RawClient:
        """A client that the broker takes for this principal."""
        return RawClient(self.thread.host, self.thread.port, source=ADDRESSES[principal])

    def allow(self, *bindings: AclBinding) -> None:
        """Let these be the only rules there are."""

        def put(broker: Broker) -> None:
            acls = broker.authorization.acls
            assert acls is not None
            for pattern in list(acls.rules.patterns()):
                acls.rules.put(pattern, ())
            for pattern, entry in bindings:
                acls.rules.put(pattern, [*acls.rules.entries(pattern), entry])
            acls.on_change()

        self.thread.call(put)


def name_clients(broker: Broker) -> None:
    """From now on a client is who its address says."""
    network = broker.network
    adopt = network.adopt

    def adopt_as_named(sock: socket.socket, peer: tuple[str, int], listener: str) -> Connection:
        connection = adopt(sock, peer, listener)
        connection.session = Session(peer[0], _BY_ADDRESS.get(peer[0], ANONYMOUS))
        return connection

    network.adopt = adopt_as_named  # type: ignore[method-assign]
