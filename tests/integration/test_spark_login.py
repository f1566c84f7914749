"""How Spark's executors log in: by a token of the driver's, whose own login goes nowhere; without a JVM."""

from __future__ import annotations

import base64
import io
import pickle
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.worker.plan_data_source_read import write_read_func_and_partitions
from tests.integration.spark_topics import schema_of
from tests.rigs.sasl_ssl_broker import SaslSslBroker, sasl_ssl_broker

from tidelog import Admin, NewTopic, Producer
from tidelog.errors import ConfigError, KafkaError
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.spark.data_source import TidelogDataSource
from tidelog.spark.read._batch_reader import TidelogReader
from tidelog.spark.read._source_options import source_options
from tidelog.spark.read._stream_reader import TidelogStreamReader
from tidelog.spark.runtime._executor_login import DriverLogin, GivenLogin, TokenLogin
from tidelog.spark.runtime._token_file import HeldToken, TokenFile
from tidelog.spark.write._batch_writer import finish_write
from tidelog.spark.write._stream_writer import TidelogStreamWriter
from tidelog.spark.write.epoch_task import write_exactly_once
from tidelog.spark.write.write_message import WriteName
from tidelog.spark.write.write_options import WriteOptions, write_options

TOPIC = "orders"
SECRET = b"admin-secret"

dumps: Callable[[object], bytes] = cloudpickle.dumps
"""As Spark sends what goes to other processes."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslSslBroker]:
    with sasl_ssl_broker(tmp_path_factory.mktemp("login")) as running:
        with Admin(running.client("admin")) as admin:
            admin.create_topics([NewTopic(TOPIC, 1)])
        with Producer(running.client("admin")) as producer:
            for number in range(10):
                producer.send(TOPIC, b"%d" % number)
        yield running


@pytest.fixture
def local_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What Spark gives to the processes of one application."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


def job(broker: SaslSslBroker, user: str = "admin", **more: str) -> dict[str, str]:
    client = {f"kafka.{name}": text for name, text in broker.client(user).items()}
    return {**client, **more}


def tokens(broker: SaslSslBroker, user: str = "admin") -> set[str]:
    with Admin(broker.client(user)) as admin:
        return {each.token_id for each in admin.describe_delegation_tokens()}


def values(batches: Iterator[Any]) -> list[bytes]:
    return [value for batch in batches for value in pa.table(batch).column("value").to_pylist()]


def test_nothing_that_spark_sends_to_executors_holds_the_password(broker: SaslSslBroker) -> None:
    given = job(broker, subscribe=TOPIC)
    for streaming in (False, True):
        # As it comes to the process that plans: made in another.
        source = pickle.loads(dumps(TidelogDataSource(given)))
        schema = schema_of(given)
        reader: Any = source.streamReader(schema) if streaming else source.reader(schema)
        sent = io.BytesIO()
        write_read_func_and_partitions(
            sent,
            reader=reader,
            data_source=source,
            schema=schema,
            max_arrow_batch_size=10,
            binary_as_bytes=True,
        )
        assert SECRET not in sent.getvalue()
        assert b"sasl.tokenauth" not in sent.getvalue(), "a token, and no options of a client"
        copy = pickle.loads(dumps(reader))
        assert isinstance(copy._options.login, TokenLogin)
        if streaming:
            reader.stop()
    writer = TidelogStreamWriter(job(broker, topic=TOPIC), schema_of(given), overwrite=False)
    sent_writer = dumps(writer)
    assert SECRET not in sent_writer
    assert isinstance(pickle.loads(sent_writer)._options.login, TokenLogin)


def test_a_batch_is_read_by_the_token(broker: SaslSslBroker) -> None:
    given = job(broker, "alice", subscribe=TOPIC)
    reader = TidelogReader(given, schema_of(given))
    partitions = reader.partitions()
    copy = pickle.loads(dumps(reader))
    read = [value for each in partitions for value in values(copy.read(each))]
    assert read == [b"%d" % number for number in range(10)]
    assert copy._options.login.mechanism == "SCRAM-SHA-512", "the driver logs in by PLAIN, tokens do by SCRAM"
    sessions = broker.thread.call(
        lambda each: {(one.session.principal.name, one.session.by_token) for one in each.network.connections}
    )
    assert ("alice", True) in sessions


def test_all_processes_of_a_driver_share_one_token(broker: SaslSslBroker, local_dir: Path) -> None:
    before = tokens(broker)
    seen = set()
    for _ in range(3):
        options = write_options(job(broker, topic=TOPIC), streaming=True)
        login = options.login.for_tasks()
        assert login is not None
        seen.add(login.token_id)
    seen.add(source_options(job(broker, subscribe=TOPIC)).login.for_tasks().token_id)  # type: ignore[union-attr]
    assert len(seen) == 1
    assert tokens(broker) - before == seen
    (file,) = (each for each in local_dir.iterdir() if each.suffix != ".lock")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET not in file.read_bytes()
    other = write_options(job(broker, "alice", topic=TOPIC), streaming=True).login.for_tasks()
    assert other is not None
    assert other.token_id not in seen, "another user has a token of his own"


def test_a_file_that_others_could_have_touched_is_not_believed(tmp_path: Path) -> None:
    file = TokenFile(tmp_path / "token")
    token = HeldToken("id", "AAAA", 0, 10, 20)
    assert file.read() is None
    file.write(token)
    assert file.read() == token
    (tmp_path / "token").chmod(0o640)
    assert file.read() is None
    (tmp_path / "token").unlink()
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / "token").symlink_to(tmp_path / "elsewhere")
    assert file.read() is None
    file.write(token)
    assert file.read() == token
    assert (tmp_path / "elsewhere").read_text() == "{}"
    (tmp_path / "token").write_text("torn")
    assert file.read() is None


class Clock:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def test_a_token_is_renewed_when_half_its_time_is_over_and_followed_by_another_in_the_end(
    broker: SaslSslBroker,
) -> None:
    with Admin(broker.client("bob")) as admin:
        client = {name: text for name, text in broker.client("bob").items() if not name.startswith("sasl.")}
        given = {name: text for name, text in broker.client("bob").items() if name.startswith("sasl.")}
        (clock := Clock(0)).now_ms = _now_ms(admin)
        began_ms = clock.now_ms
        login = DriverLogin(client, given, "SCRAM-SHA-256", clock)
        first = login.for_tasks()
        day_ms = 86_400_000
        clock.now_ms += day_ms // 2 - 60_000
        assert login.for_tasks() == first
        (before,) = admin.describe_delegation_tokens()
        clock.now_ms += 120_000
        assert login.for_tasks() == first, "renewed, and the same"
        (after,) = admin.describe_delegation_tokens()
        assert after.expires_ms > before.expires_ms
        clock.now_ms = began_ms + 7 * day_ms - day_ms // 2
        login._held = replace(
            login._held, since_ms=clock.now_ms - day_ms // 2, expires_ms=clock.now_ms + day_ms // 2
        )  # type: ignore[type-var]
        second = login.for_tasks()
        assert second.token_id != first.token_id, "it would not live for another day"
        assert {each.token_id for each in admin.describe_delegation_tokens()} == {
            first.token_id,
            second.token_id,
        }
        for each in admin.describe_delegation_tokens():
            admin.expire_delegation_token(each.hmac)
        clock.now_ms += day_ms // 2 + 60_000
        third = login.for_tasks()
        assert third.token_id not in (first.token_id, second.token_id), "one that was ended is not renewed"


def _now_ms(admin: Admin) -> int:
    token = admin.create_delegation_token()
    admin.expire_delegation_token(token.hmac)
    return token.issued_ms


def test_tasks_of_a_stream_are_told_the_token_of_now(broker: SaslSslBroker) -> None:
    given = job(broker, subscribe=TOPIC, startingOffsets="earliest")
    planned = pickle.loads(dumps(TidelogStreamReader(given, schema_of(given))))
    driver = TidelogStreamReader(given, schema_of(given))
    try:
        first = planned._options.login
        login = driver._options.login
        assert isinstance(login, DriverLogin)
        with Admin(broker.client("admin")) as admin:
            for each in admin.describe_delegation_tokens():
                admin.expire_delegation_token(each.hmac)
        login._held = None
        start: dict[str, Any] = driver.initialOffset()
        end: dict[str, Any] = driver.latestOffset(start, driver.getDefaultReadLimit())
        (task,) = driver.partitions(start, end)
        task = pickle.loads(dumps(task))
        assert task.login.token_id != first.token_id
        assert len(values(planned.read(task))) == 10
        assert task.login.password not in repr(task) + repr(planned._options)
    finally:
        driver.stop()


def test_a_login_goes_as_it_is_where_the_job_says_so_or_it_is_a_token(broker: SaslSslBroker) -> None:
    before = tokens(broker)
    plain = source_options(job(broker, subscribe=TOPIC, delegationToken="false"))
    assert isinstance(plain.login, GivenLogin)
    assert pickle.loads(dumps(plain)).client_for("executor")["sasl.password"] == "admin-secret"
    with Admin(broker.client("admin")) as admin:
        token = admin.create_delegation_token()
        by_token = job(broker, subscribe=TOPIC)
        del by_token["kafka.sasl.username"], by_token["kafka.sasl.password"]
        by_token["kafka.sasl.jaas.config"] = (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{token.token_id}" password="{token.password}" tokenauth="true";'
        )
        reader = TidelogReader(by_token, schema_of(by_token))
        assert isinstance(reader._options.login, GivenLogin)
        assert sum(len(values(reader.read(each))) for each in reader.partitions()) == 10
        admin.expire_delegation_token(token.hmac)
    assert tokens(broker) == before
    assert "admin-secret" not in repr(plain)


def test_brokers_without_tokens_are_told_of_with_the_way_out(tmp_path: Path) -> None:
    with sasl_ssl_broker(tmp_path / "none", delegation_token_secret_key="") as without:
        given = job(without, topic=TOPIC)
        with pytest.raises(
            ConfigError, match=r"delegation\.token\.secret\.key.*delegationToken=false"
        ) as told:
            TidelogStreamWriter(given, schema_of(job(without, subscribe=TOPIC)), overwrite=False)
        assert "admin-secret" not in str(told.value)


def test_a_mechanism_that_brokers_do_not_offer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.spark.runtime._executor_login._KNOWN_EVERYWHERE_S", 0.0)
    with sasl_ssl_broker(tmp_path, sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-512") as broker:
        given = job(broker, subscribe=TOPIC, delegationTokenMechanism="SCRAM-SHA-256")
        with pytest.raises(ConfigError, match=r"SCRAM-SHA-256 to its sasl\.enabled\.mechanisms"):
            TidelogReader(given, schema_of(given))
        given = job(broker, "alice", subscribe=TOPIC)
        assert base64.b64decode(source_options(given).login.for_tasks().password)  # type: ignore[union-attr]


def test_exactly_once_writing_by_a_token_needs_the_rules_that_the_page_names(tmp_path: Path) -> None:
    with sasl_ssl_broker(
        tmp_path,
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:admin",
    ) as broker:
        options = write_options(job(broker, "bob", topic=TOPIC), streaming=True)
        shipped = pickle.loads(dumps(options))
        with Admin(broker.client("admin")) as admin:
            admin.create_topics([NewTopic(TOPIC, 1)])
            with pytest.raises(KafkaError):
                _write_epoch(options, shipped)
            for result in admin.create_acls(_rules_of_the_page("User:bob")):
                result.raise_for_error()
        _write_epoch(options, shipped)
        given = job(broker, "admin", subscribe=TOPIC, kafka_isolation_level="read_committed")
        given = {name.replace("_", "."): text for name, text in given.items()}
        reader = TidelogReader(given, schema_of(given))
        assert [value for each in reader.partitions() for value in values(reader.read(each))] == [b"once"]


def _write_epoch(driver: WriteOptions, task: WriteOptions) -> None:
    rows = pa.record_batch({"value": pa.array([b"once"])})
    written = write_exactly_once([rows], task, WriteName("app", 0, "run", 0, streaming=True))
    finish_write([written], driver, commit=True)


def _rules_of_the_page(principal: str) -> list[AclBinding]:
    topic = ResourcePattern(ResourceType.TOPIC, TOPIC, PatternType.LITERAL)
    epochs = ResourcePattern(ResourceType.TOPIC, "__tidelog_spark_epochs", PatternType.LITERAL)
    ids = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "__tidelog-spark-epochs.", PatternType.PREFIXED)
    groups = ResourcePattern(ResourceType.GROUP, "__tidelog-spark-epochs.", PatternType.PREFIXED)
    wanted = [
        (topic, Operation.WRITE),
        (epochs, Operation.CREATE),
        (epochs, Operation.READ),
        (ids, Operation.WRITE),
        (groups, Operation.READ),
    ]
    return [
        AclBinding(pattern, AclEntry(principal, "*", operation, Permission.ALLOW))
        for pattern, operation in wanted
    ]
