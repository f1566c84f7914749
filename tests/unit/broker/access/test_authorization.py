"""Access control of a broker: what is kept with sessions, what is logged, and the table of what APIs need."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.rigs.clock import ManualClock

from tidelog.broker.access.access_log import AccessLog
from tidelog.broker.access.authorization import OPEN, Authorization
from tidelog.broker.access.required_access import REQUIRED, check_of
from tidelog.broker.served import SERVED, SERVED_IN_CLUSTERS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import Uuid
from tidelog.security.acls.authorizer import Authorizer
from tidelog.security.acls.model import (
    CLUSTER,
    AclBinding,
    AclEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.security.acls.rule_index import RuleIndex
from tidelog.security.principal import Principal
from tidelog.security.session import Session
from tidelog.wire.api import API_TABLE, ApiKey

TOPIC = ResourceType.TOPIC
ORDERS = ResourcePattern(TOPIC, "orders")
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)


class CountingAuthorizer(Authorizer):
    asked = 0

    def decide(self, *question: Any) -> Any:
        self.asked += 1
        return super().decide(*question)


def guarded(*bindings: AclBinding) -> tuple[Authorization, CountingAuthorizer]:
    authorizer = CountingAuthorizer(RuleIndex(bindings))
    return Authorization(authorizer, None, AccessLog(ManualClock())), authorizer


def alice() -> Session:
    return Session("10.0.0.1", Principal("alice"))


def test_without_an_authorizer_everything_is_allowed_and_nothing_kept() -> None:
    session = alice()
    assert OPEN.allows(session, Operation.ALTER, ResourceType.CLUSTER)
    assert OPEN.allows_topic(session, Operation.WRITE, "orders")
    assert OPEN.allows_any(session, Operation.WRITE, TOPIC)
    assert all(check_of(key, OPEN) is None for key in REQUIRED)
    assert session.decisions == {}


def test_what_is_allowed_is_decided_once() -> None:
    authorization, authorizer = guarded(AclBinding(ORDERS, READ))
    session = alice()
    for _ in range(5):
        assert authorization.allows_topic(session, Operation.READ, "orders")
    assert authorizer.asked == 1


def test_what_is_denied_is_decided_and_logged_each_time_unless_nobody_asked_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    authorization, authorizer = guarded()
    session = alice()
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        for _ in range(3):
            assert not authorization.allows_topic(session, Operation.READ, "orders")
        assert (authorizer.asked, len(caplog.records)) == (3, 3)
        for _ in range(3):
            assert not authorization.allows_topic(session, Operation.WRITE, "orders", quiet=True)
        assert (authorizer.asked, len(caplog.records)) == (4, 3)


def test_a_flood_of_denials_is_logged_in_part_and_hides_nobody_elses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    authorization, _ = guarded()
    session = alice()
    with caplog.at_level(logging.INFO, "kafka.authorizer.logger"):
        for _ in range(1000):
            authorization.allows_topic(session, Operation.READ, "orders")
        assert len(caplog.records) == 10
        authorization.allows_topic(Session("10.0.0.1", Principal("bob")), Operation.READ, "orders")
    assert len(caplog.records) == 11
    assert "User:bob" in caplog.records[-1].getMessage()


def test_a_session_keeps_no_more_decisions_than_fit() -> None:
    authorization, _ = guarded(AclBinding(ResourcePattern(TOPIC, "*"), READ))
    session = alice()
    for number in range(50_000):
        authorization.allows_topic(session, Operation.READ, f"topic-{number}", quiet=True)
    assert len(session.decisions) <= 20_000


def test_what_is_required_is_raised_with_principal_operation_and_resource() -> None:
    authorization, _ = guarded()
    with pytest.raises(KafkaError) as refusal:
        authorization.require(alice(), Operation.DELETE, ResourceType.GROUP, "g")
    assert refusal.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert refusal.value.message == "User:alice from 10.0.0.1 is not allowed to DELETE group 'g'."


def test_every_api_that_is_served_says_what_it_needs() -> None:
    assert set(REQUIRED) == set(SERVED) | set(SERVED_IN_CLUSTERS)


@pytest.mark.parametrize("key", SERVED_IN_CLUSTERS)
def test_what_brokers_ask_of_each_other_needs_cluster_action(key: ApiKey) -> None:
    authorization, authorizer = guarded()
    check = check_of(key, authorization)
    assert check is not None
    request = API_TABLE[key].request()
    with pytest.raises(KafkaError) as refusal:
        check(alice(), request)
    assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    authorizer.rules.put(CLUSTER, [READ._replace(operation=Operation.CLUSTER_ACTION)])
    check(alice(), request)
    assert "error_code" in API_TABLE[key].response.__struct_fields__


@pytest.mark.parametrize("key", REQUIRED)
def test_fields_that_name_resources_are_fields_of_the_request(key: ApiKey) -> None:
    for need in REQUIRED[key].needs:
        if need.field and need.kind is not ResourceType.CLUSTER:
            assert need.field in API_TABLE[key].request.__struct_fields__


def test_topics_that_come_and_go_fill_no_session_by_their_ids() -> None:
    write = AclEntry("User:alice", "*", Operation.WRITE, Permission.ALLOW)
    authorization, authorizer = guarded(AclBinding(ORDERS, write))
    session = alice()
    for number in range(50_000):
        assert authorization.allows_writing_to(session, "orders", Uuid(number.to_bytes(16, "big")))
    assert len(session.decisions) <= 20_000
    assert authorizer.asked <= 4
