"""Apache Kafka 3.9 and Tidelog in one secure cluster: SASL_SSL between them, rules, users, tokens of both.

Whatever one of them is told holds on the other as soon as ZooKeeper has told it, whichever controls.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from tests.compat import workload
from tests.compat.conftest import available
from tests.compat.mixed_cluster import KAFKA, TIDELOG
from tests.compat.secure_pair import ADMINISTRATOR, PLAIN, SCRAM, Login, SecurePair, secure_pair

from tidelog.client.errors import AuthenticationError
from tidelog.errors import ErrorCode
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tidelog.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

ANY, ALLOW, DENY = 1, 3, 2
TOPIC, GROUP = 2, 3
READ, WRITE = 3, 4
LITERAL, PREFIXED = 3, 4
COUNT = 200

BOTH = [pytest.param(KAFKA, TIDELOG, id="from-kafka"), pytest.param(TIDELOG, KAFKA, id="from-tidelog")]


@pytest.fixture(
    scope="module",
    params=["kafka", "tidelog"],
    ids=["kafka-controls", "tidelog-controls"],
)
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecurePair]:
    with available(), secure_pair(tmp_path_factory.mktemp("secure"), request.param, SCRAM) as found:
        yield found


# What is asked of one broker or the other


def controller_of(pair: SecurePair) -> int:
    controller = pair.cluster.controller
    assert controller is not None
    return controller


def make_topic(pair: SecurePair, name: str) -> None:
    """A topic of two partitions, of which each broker leads one and follows the other."""
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in enumerate(([KAFKA, TIDELOG], [TIDELOG, KAFKA]))
    ]
    creation = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
    request = CreateTopicsRequest(topics=[creation], timeout_ms=10_000)
    answer = pair.ask(controller_of(pair), request, CreateTopicsResponse)
    assert [each.error_code for each in answer.topics] == [0], answer
    pair.cluster.wait_all_in_sync([(name, 0), (name, 1)])


def set_password(pair: SecurePair, name: str, password: str) -> Login:
    """Of the user's SCRAM credential, which the controller takes."""
    salt = os.urandom(16)
    upsertion = ScramCredentialUpsertion(
        name=name,
        mechanism=2,
        iterations=4096,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac("sha512", password.encode(), salt, 4096),
    )
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
    answer = pair.ask(controller_of(pair), request, AlterUserScramCredentialsResponse)
    assert [each.error_code for each in answer.results] == [0], answer
    return Login(name, password)


def lets_in(pair: SecurePair, broker_id: int, login: Login) -> bool:
    try:
        pair.ask(broker_id, DescribeClusterRequest(), DescribeClusterResponse, login)
    except AuthenticationError:
        return False
    return True


def keeps_out(pair: SecurePair, broker_id: int, login: Login) -> bool:
    return not lets_in(pair, broker_id, login)


def new_user(pair: SecurePair, name: str) -> Login:
    """A user whom both brokers know."""
    login = set_password(pair, name, f"{name}'s word")
    for broker_id in (KAFKA, TIDELOG):
        pair.cluster.wait(partial(lets_in, pair, broker_id, login), f"{name} is known at {broker_id}")
    return login


def rule(
    name: str, kind: int, resource: str, operation: int, permission: int = ALLOW, pattern: int = LITERAL
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=resource,
        resource_pattern_type=pattern,
        principal=f"User:{name}",
        host="*",
        operation=operation,
        permission_type=permission,
    )


def add_rules(pair: SecurePair, broker_id: int, *rules: AclCreation) -> None:
    answer = pair.ask(broker_id, CreateAclsRequest(creations=list(rules)), CreateAclsResponse)
    assert [each.error_code for each in answer.results] == [0] * len(rules), answer


def _whose(name: str) -> dict[str, object]:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": f"User:{name}",
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }


def remove_rules(pair: SecurePair, broker_id: int, name: str) -> None:
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_whose(name))])  # type: ignore[arg-type]
    answer = pair.ask(broker_id, request, DeleteAclsResponse)
    assert [each.error_code for each in answer.filter_results] == [0], answer


def rules_of(pair: SecurePair, broker_id: int, name: str) -> set[tuple[object, ...]]:
    request = DescribeAclsRequest(**_whose(name))  # type: ignore[arg-type]
    answer = pair.ask(broker_id, request, DescribeAclsResponse)
    assert answer.error_code == 0, answer
    return {
        (each.resource_type, each.resource_name, each.pattern_type, acl.operation, acl.permission_type)
        for each in answer.resources
        for acl in each.acls
    }


def _knows_rules(pair: SecurePair, broker_id: int, name: str, count: int) -> bool:
    return len(rules_of(pair, broker_id, name)) == count


def wait_for_rules(pair: SecurePair, name: str, count: int) -> None:
    for broker_id in (KAFKA, TIDELOG):
        has_heard = partial(_knows_rules, pair, broker_id, name, count)
        pair.cluster.wait(has_heard, f"{broker_id} knows {count} rules of {name}")
    assert rules_of(pair, KAFKA, name) == rules_of(pair, TIDELOG, name)


def outcome(producer: Producer, topic: str, partition: int) -> str:
    """What becomes of a record: that it is written, or the name of the error."""
    outcomes: list[KafkaError | None] = []
    producer.produce(topic, b"x", partition=partition, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(workload.TIMEOUT_S) == 0
    (error,) = outcomes
    return "written" if error is None else str(error.name())


# What holds


def test_records_are_on_both_before_they_are_acknowledged_and_are_read_from_both(
    secured: SecurePair, topic: str
) -> None:
    write_and_read(secured, topic)


def write_and_read(pair: SecurePair, topic: str) -> None:
    """Somebody with the rules for it, and no others."""
    make_topic(pair, topic)
    alice = new_user(pair, f"alice-{topic}")
    add_rules(
        pair,
        TIDELOG,
        rule(alice.username, TOPIC, topic[:20], WRITE, pattern=PREFIXED),
        rule(alice.username, TOPIC, topic, READ),
        rule(alice.username, GROUP, "readers", READ),
    )
    wait_for_rules(pair, alice.username, 3)
    producer = Producer(pair.librdkafka(alice, enable_idempotence=True, acks="all"))
    errors: list[KafkaError | None] = []
    for number in range(COUNT):
        producer.produce(
            topic, str(number), partition=number % 2, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(workload.TIMEOUT_S) == 0
    assert errors == [None] * COUNT
    assert all(set(pair.cluster.state((topic, index)).isr) == {KAFKA, TIDELOG} for index in (0, 1))

    consumer = Consumer(pair.librdkafka(alice, group_id="readers", auto_offset_reset="earliest"))
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < COUNT:
        message: Message | None = consumer.poll(workload.TIMEOUT_S)
        assert message is not None, f"{len(found)} of {COUNT} records"
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.close()
    assert sorted(found, key=str) == sorted((str(number).encode() for number in range(COUNT)), key=str)


@pytest.mark.parametrize(("told", "other"), BOTH)
def test_a_rule_that_one_broker_is_told_holds_on_the_other(
    secured: SecurePair, topic: str, told: int, other: int
) -> None:
    make_topic(secured, topic)
    led_by_other = 0 if other == KAFKA else 1
    user = new_user(secured, f"bob-{topic}")
    name = user.username
    add_rules(secured, told, rule(name, TOPIC, topic, WRITE))
    wait_for_rules(secured, name, 1)
    producer = Producer(secured.librdkafka(user))
    assert [outcome(producer, topic, index) for index in (0, 1)] == ["written", "written"]

    # A denial, and of a prefix at that: on the connection that is open.
    add_rules(secured, told, rule(name, TOPIC, topic[:-1], WRITE, DENY, PREFIXED))
    wait_for_rules(secured, name, 2)
    assert outcome(producer, topic, led_by_other) == "TOPIC_AUTHORIZATION_FAILED"

    remove_rules(secured, other, name)
    wait_for_rules(secured, name, 0)
    assert outcome(Producer(secured.librdkafka(user)), topic, led_by_other) == "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize(("made_at", "used_at"), BOTH)
def test_a_token_of_one_broker_is_good_at_the_other(
    secured: SecurePair, topic: str, made_at: int, used_at: int
) -> None:
    owner = new_user(secured, f"carol-{topic}")
    renewers = [CreatableRenewers(principal_type="User", principal_name="somebody")]
    request = CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=renewers, max_lifetime_ms=-1
    )
    made = secured.ask(made_at, request, CreateDelegationTokenResponse, owner)
    assert made.error_code == 0, made
    hmac = made.hmac
    token = Login(made.token_id, base64.b64encode(hmac).decode(), by_token=True)
    secured.cluster.wait(partial(lets_in, secured, used_at, token), "the token is known at the other broker")
    assert lets_in(secured, made_at, token)

    shown = secured.ask(
        used_at, DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse, owner
    )
    (found,) = shown.tokens
    assert (found.token_id, found.principal_name, found.hmac) == (made.token_id, owner.username, hmac)
    assert [each.principal_name for each in found.renewers] == ["somebody"]
    assert (found.issue_timestamp, found.expiry_timestamp, found.max_timestamp) == (
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
    )

    # Who came by a token gets no other one.
    again = secured.ask(used_at, request, CreateDelegationTokenResponse, token)
    assert again.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    expire = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
    assert secured.ask(used_at, expire, ExpireDelegationTokenResponse, owner).error_code == 0
    secured.cluster.wait(partial(keeps_out, secured, made_at, token), "the token is gone where it was made")
    assert not lets_in(secured, used_at, token)


def test_users_come_change_and_go_on_both(secured: SecurePair, topic: str) -> None:
    first = new_user(secured, f"dave-{topic}")
    second = set_password(secured, first.username, "another word")
    for broker_id in (KAFKA, TIDELOG):
        secured.cluster.wait(partial(lets_in, secured, broker_id, second), f"changed at {broker_id}")
        assert not lets_in(secured, broker_id, first)
    deletion = ScramCredentialDeletion(name=first.username, mechanism=2)
    request = AlterUserScramCredentialsRequest(deletions=[deletion])
    answer = secured.ask(controller_of(secured), request, AlterUserScramCredentialsResponse)
    assert [each.error_code for each in answer.results] == [0]
    for broker_id in (KAFKA, TIDELOG):
        secured.cluster.wait(partial(keeps_out, secured, broker_id, second), f"gone at {broker_id}")
    assert lets_in(secured, KAFKA, ADMINISTRATOR)
    assert lets_in(secured, TIDELOG, ADMINISTRATOR)


@pytest.mark.parametrize("broker_id", [KAFKA, TIDELOG], ids=["kafka", "tidelog"])
@pytest.mark.parametrize("login", [Login("paula", "plain word", PLAIN), Login("paula", "wrong", PLAIN)])
def test_plain_logins_are_let_in_or_not_by_both_alike(
    secured: SecurePair, broker_id: int, login: Login
) -> None:
    assert lets_in(secured, broker_id, login) == (login.password == "plain word")


def test_brokers_log_in_at_each_other_by_plain(tmp_path: Path, topic: str) -> None:
    with available(), secure_pair(tmp_path, "tidelog", PLAIN) as pair:
        write_and_read(pair, topic)


def test_one_takes_over_when_the_other_leaves_and_lets_it_in_again(secured: SecurePair, topic: str) -> None:
    """The last one: afterwards the other broker is the controller."""
    make_topic(secured, topic)
    first = controller_of(secured)
    second = TIDELOG if first == KAFKA else KAFKA
    secured.cluster.stop(first)
    secured.cluster.wait(lambda: secured.cluster.controller == second, f"{second} controls")
    secured.cluster.wait_led_by(second, [(topic, 0), (topic, 1)])
    secured.cluster.brokers[first].start()
    secured.cluster.wait_all_in_sync()
    write_and_read(secured, f"{topic}-after")
