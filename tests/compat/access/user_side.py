"""A broker as one user sees it: a ``Side`` whose connections log in by SASL/PLAIN first."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

from tests.compat.side_by_side.side import TIMEOUT_S, Side

from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResource

ANY, MATCH_LITERAL, ALLOW = 1, 3, 3
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, USER = 2, 3, 4, 5, 7
CLUSTER_NAME = "kafka-cluster"
OTHER_USER = "User:somebody-else"
PASSWORD = "secret"

USERS = 12
"""How many users the brokers know: no request needs more rules than that."""


def user(number: int) -> str:
    """The name of a user."""
    return f"user{number}"


def options(class_name: str, plaintext: str, sasl: str) -> dict[str, str]:
    """What makes a broker of two listeners, the first for its superuser, the second for users."""
    users = " ".join(f'user_{user(number)}="{PASSWORD}"' for number in range(USERS))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "authorizer.class.name": class_name,
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "delegation.token.secret.key": "known to brokers alone",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
        "listeners": f"PLAINTEXT://{plaintext},SASL_PLAINTEXT://{sasl}",
        "advertised.listeners": f"PLAINTEXT://{plaintext},SASL_PLAINTEXT://{sasl}",
    }


class UserSide(Side):
    """The same broker, through the eyes of somebody."""

    def __init__(self, admin: Side, port: int, name: str) -> None:
        super().__init__(admin.name, admin.host, port, admin.node_id)
        self.prefix, self._words = admin.prefix, admin._words
        self.user = name

    def _connection(self) -> socket.socket:
        if self._sock is None:
            sock = super()._connection()
            _frame(sock, struct.pack(">hhih", 17, 1, 1, -1) + struct.pack(">h", 5) + b"PLAIN")
            token = f"\0{self.user}\0{PASSWORD}".encode()
            answer = _frame(sock, struct.pack(">hhih", 36, 0, 2, -1) + struct.pack(">i", len(token)) + token)
            assert answer[4:6] == b"\0\0", f"{self.name}: {self.user} was not let in: {answer!r}"
            return sock
        return self._sock


def _frame(sock: socket.socket, body: bytes) -> bytes:
    sock.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", _exactly(sock, 4))
    return _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        assert chunk, "the broker closed the connection while a user logged in"
        data += chunk
    return data


def allow(admin: Side, name: str, rules: list[tuple[int, str, int]]) -> None:
    """Allow a user operations on resources, and wait until the broker knows."""
    if not rules:
        return
    creations = [
        AclCreation(
            resource_type=kind,
            resource_name=resource,
            resource_pattern_type=MATCH_LITERAL,
            principal=f"User:{name}",
            host="*",
            operation=operation,
            permission_type=ALLOW,
        )
        for kind, resource, operation in rules
    ]
    response = admin.expect(3, CreateAclsRequest(creations=creations))
    results = response.results  # type: ignore[attr-defined]
    assert [each.error_code for each in results] == [0] * len(rules), f"{admin.name}: {results}"
    deadline = time.monotonic() + TIMEOUT_S
    while _known(admin, name) < len(set(rules)):
        assert time.monotonic() < deadline, f"{admin.name}: the rules of {name} do not arrive"
        time.sleep(0.005)


def _known(admin: Side, name: str) -> int:
    request = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=f"User:{name}",
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    found = admin.expect(3, request)
    resources: list[DescribeAclsResource] = found.resources  # type: ignore[attr-defined]
    return sum(len(each.acls) for each in resources)


@contextlib.contextmanager
def taken_back(admin: Side, name: str) -> Iterator[None]:
    """Take all rules of a user away at the end."""
    try:
        yield
    finally:
        every = DeleteAclsFilter(
            resource_type_filter=ANY,
            resource_name_filter=None,
            pattern_type_filter=ANY,
            principal_filter=f"User:{name}",
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        admin.expect(3, DeleteAclsRequest(filters=[every]))
        deadline = time.monotonic() + TIMEOUT_S
        while _known(admin, name):
            assert time.monotonic() < deadline, f"{admin.name}: the rules of {name} do not go"
            time.sleep(0.005)
