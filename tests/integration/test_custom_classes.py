"""Python classes that options name: reporters, authorizers and readers, each with its documented example."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rigs.waiting import wait_until

from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.errors import ErrorCode, KafkaError
from tidelog.properties import parse_properties
from tidelog.security.acls.filters import AclFilter
from tidelog.testing.broker_process import BrokerProcess

ROOT = Path(__file__).parents[2]
WAIT_S = 60


def section(document: str, heading: str) -> str:
    """What a page says below a heading, up to the next one of any level."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    return re.split(r"\n##+ ", text.split(f" {heading}\n", 1)[1], maxsplit=1)[0]


def block(text: str, language: str) -> str:
    """The block of a language in a section."""
    found = re.search(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    assert found is not None
    return found[1]


def broker_with(directory: Path, code: str, options: dict[str, str]) -> BrokerProcess:
    """A broker that finds ``code`` as the module ``custom``, and the modules in ``directory``."""
    (directory / "custom.py").write_text(code, encoding="utf-8")
    path = os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
    return BrokerProcess(directory / "data", options=options, environment={"PYTHONPATH": path})


def test_the_documented_reporter_receives_the_metrics(tmp_path: Path) -> None:
    text = section("how-to/observing.md", "A reporter of your own")
    (tmp_path / "to_file.py").write_text(block(text, "python"), encoding="utf-8")
    lines = tmp_path / "metrics.jsonl"
    options = parse_properties(block(text, "properties")) | {"to.file.path": str(lines)}
    with broker_with(tmp_path, "", options) as broker:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for _ in range(3):
                producer.send("orders", b"tea").result(WAIT_S)
        wait_until(lambda: lines.exists() and '{"orders": 3}' in lines.read_text().splitlines(), "a report")
        # Nothing is served where no address is named, and our own options are not called ignored.
        assert "Metrics are at" not in broker.log
        assert "Unknown options are ignored, except by custom classes: to.file.path" in broker.log
        assert broker.stop() == 0


REPORTERS = """
import threading
import time

from tidelog.metrics.reporters import MetricsReporter


class Raises(MetricsReporter):
    def report(self, metrics):
        raise SystemExit(3)


class Hangs(MetricsReporter):
    def report(self, metrics):
        print("hanging", flush=True)
        threading.Event().wait()


class Good(MetricsReporter):
    def configure(self, options):
        print("secret" in str(options), options["broker.id"], flush=True)

    def report(self, metrics):
        counted = [each for each in metrics if each.name == "tidelog_event_loop_lag_seconds_bucket"]
        print("reported", len(metrics) > 100, counted[-1].labels["le"], flush=True)

    def close(self):
        print("closed", flush=True)
"""


def test_reporters_that_fail_or_hang_affect_neither_the_broker_nor_others(tmp_path: Path) -> None:
    options = {
        "metric.reporters": "custom:Raises,custom:Hangs,custom:Good,"
        "org.apache.kafka.common.metrics.JmxReporter,com.example.Java",
        "kafka.metrics.polling.interval.secs": "1",
        "ssl.keystore.password": "secret",
        "broker.id": "5",
    }
    with broker_with(tmp_path, REPORTERS, options) as broker:
        wait_until(lambda: broker.log.count("reported True +Inf") >= 3, "the good reporter goes on")
        wait_until(lambda: "custom:Hangs is still busy with an earlier report" in broker.log, "a warning")
        assert broker.log.count("custom:Hangs is still busy") == 1
        assert broker.log.count("custom:Raises failed") == 1
        assert "False 5\n" in broker.log
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("orders", b"tea").result(WAIT_S)
        assert broker.stop() == 0
        assert "closed" in broker.log


BROKEN = """
import no_such_module_anywhere
"""
CLASSES = """
from tidelog.metrics.reporters import MetricsReporter
from tidelog.security.acls.custom_authorizer import CustomAuthorizer


class Other:
    pass


class NoReport(MetricsReporter):
    pass


class NeedsArgument(CustomAuthorizer):
    def __init__(self, argument):
        pass

    def authorize(self, action):
        return True


class Refuses(CustomAuthorizer):
    def configure(self, options):
        raise ValueError("my.option is not set")

    def authorize(self, action):
        return True


class ExitsWhenMade(CustomAuthorizer):
    def __init__(self):
        raise SystemExit(0)

    def authorize(self, action):
        return True


class ExitsWhenConfigured(MetricsReporter):
    def configure(self, options):
        raise SystemExit(0)

    def report(self, metrics):
        pass
"""


@pytest.mark.parametrize(
    ("code", "option", "name", "words"),
    [
        (
            CLASSES,
            "metric.reporters",
            "missing:Class",
            "the module 'missing' of missing:Class cannot",
        ),
        (BROKEN, "metric.reporters", "custom:Class", "No module named 'no_such_module_anywhere'"),
        (CLASSES, "metric.reporters", "custom:Absent", "has no class 'Absent'"),
        (CLASSES, "metric.reporters", "custom:Other", "derive it from that class"),
        (CLASSES, "metric.reporters", "custom:NoReport", "does not define report"),
        (CLASSES, "authorizer.class.name", "custom:NoReport", "not a subclass of tidelog.security.acls"),
        (CLASSES, "authorizer.class.name", "custom:NeedsArgument", "cannot be created without arguments"),
        (CLASSES, "authorizer.class.name", "custom:Refuses", "my.option is not set"),
        (CLASSES, "authorizer.class.name", "custom:ExitsWhenMade", "without arguments (SystemExit: 0)"),
        (CLASSES, "metric.reporters", "custom:ExitsWhenConfigured", "configuration (SystemExit: 0)"),
        ("raise SystemExit(0)", "metric.reporters", "custom:Class", "cannot be imported (SystemExit: 0)"),
    ],
)
def test_a_class_that_cannot_be_used_stops_the_start_with_one_sentence(
    tmp_path: Path, code: str, option: str, name: str, words: str
) -> None:
    refusal = broker_with(tmp_path, code, {option: name}).refusal()
    assert words in refusal
    assert option in refusal
    assert "Traceback" not in refusal


def test_the_documented_authorizer_decides(tmp_path: Path) -> None:
    text = section("how-to/security.md", "An authorizer of your own")
    (tmp_path / "office_hours.py").write_text(block(text, "python"), encoding="utf-8")
    options = parse_properties(block(text, "properties"))
    allowed = {**options, "office.hours.users": "ANONY"}
    with broker_with(tmp_path, "", allowed) as broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("orders", b"tea").result(WAIT_S)
        with pytest.raises(KafkaError) as refused:
            admin.describe_acls(AclFilter())
        assert refused.value.code is ErrorCode.SECURITY_DISABLED
        assert "custom class, which keeps no access rules" in str(refused.value)
        broker.stop()
    with broker_with(tmp_path, "", options) as broker:
        with Producer(bootstrap_servers=broker.bootstrap, enable_idempotence=False) as producer:
            with pytest.raises(KafkaError) as denied:
                producer.send("orders", b"tea").result(WAIT_S)
            assert denied.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert records_of(broker.bootstrap, "orders", 1) == [(None, b"tea")]
        assert "User:ANONYMOUS is Denied operation = WRITE" in broker.log


AUTHORIZERS = """
import threading

from tidelog.security.acls.custom_authorizer import CustomAuthorizer


class Odd(CustomAuthorizer):
    def authorize(self, action):
        if action.resource_type.name == "CLUSTER":
            return False
        if action.resource_name == "raises":
            raise SystemExit("no")
        if action.resource_name == "truthy":
            return "yes"
        if action.resource_name == "hangs":
            threading.Event().wait()
        return True
"""


def test_an_authorizer_that_fails_or_hangs_permits_nothing_and_stops_nothing(tmp_path: Path) -> None:
    with broker_with(tmp_path, AUTHORIZERS, {"authorizer.class.name": "custom:Odd"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            for _ in range(3):
                for name in ("raises", "truthy"):
                    (result,) = admin.create_topics([NewTopic(name)])
                    assert result.error is not None
                    assert result.error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            (result,) = admin.create_topics([NewTopic("orders")])
            assert result.error is None
            # From the first call that hangs on everything is denied, and answered.
            for name in ("hangs", "hangs", "more"):
                (result,) = admin.create_topics([NewTopic(name)])
                assert result.error is not None
                assert result.error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert broker.log.count("custom:Odd raised SystemExit") == 1
        assert broker.log.count("custom:Odd returned a str, not a bool") == 1
        assert broker.log.count("custom:Odd takes longer than 1 s") == 1
        assert broker.stop() == 0


def run_produce(
    bootstrap: str, directory: Path, *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "tidelog", "produce", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "TIDELOG_BOOTSTRAP": bootstrap},
    )


def records_of(bootstrap: str, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[tuple[bytes | None, bytes | None]] = []
        for record in consumer.records(timeout=WAIT_S):
            found.append((record.key, record.value))
            if len(found) == count:
                break
        return found


def test_the_documented_reader_reads(bootstrap: str, topic_name: Callable[[], str], tmp_path: Path) -> None:
    topic = topic_name()
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic)])
    text = (
        (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8").split("class of your own", 1)[1]
    )
    (tmp_path / "csv_reader.py").write_text(block(text, "python"), encoding="utf-8")
    shell = block(text, "sh")
    command = f"{sys.executable} -m tidelog produce {topic}"
    done = subprocess.run(
        shell.replace("tidelog produce orders", command).replace("PYTHONPATH=. ", ""),
        shell=True,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
            "TIDELOG_BOOTSTRAP": bootstrap,
        },
    )
    assert (done.returncode, done.stderr) == (0, f"2 records written to {topic}\n"), done
    assert records_of(bootstrap, topic, 2) == [(b"4", b"tea,large"), (b"7", b"coffee,small")]


READERS = """
from tidelog.client.record_reader import InputRecord, RecordReader


class Fails(RecordReader):
    def read(self, stream):
        for line in stream:
            yield InputRecord(line.strip())
        raise RuntimeError("line 3 is missing")


class Text(RecordReader):
    def read(self, stream):
        yield "text"


class Exits(RecordReader):
    def read(self, stream):
        yield InputRecord(b"1")
        raise SystemExit(3)


class ExitsAtTheEnd(RecordReader):
    def read(self, stream):
        yield InputRecord(b"1")

    def close(self):
        raise SystemExit(3)


class Wrong(RecordReader):
    def configure(self, properties):
        self.name = properties["name"]

    def read(self, stream):
        yield InputRecord(b"1")
        record = InputRecord(b"2")
        setattr(record, self.name, [3] if self.name == "headers" else "3")
        yield record


class Many(RecordReader):
    def configure(self, properties):
        self.count = int(properties["count"])

    def read(self, stream):
        for number in range(self.count):
            yield InputRecord(b"%d" % number, partition=0, headers=[("n", b"1")], timestamp=number)
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--reader", "custom:Fails"], "the reader failed after record 2: RuntimeError: line 3 is missing"),
        (["--reader", "custom:Text"], "yielded a str, not an InputRecord"),
        (["--reader", "custom:Exits"], "the reader failed after record 1: SystemExit: 3"),
        (["--reader", "custom:ExitsAtTheEnd"], "the reader failed after record 1: SystemExit: 3"),
        *(
            (
                ["--reader", "custom:Wrong", "--reader-property", f"name={name}"],
                f"the reader failed after record 1: TypeError: {name} of an InputRecord ",
            )
            for name in ("value", "key", "partition", "timestamp", "headers")
        ),
        (["--reader", "custom:Many"], "rejected its properties (KeyError: 'count')"),
        (["--reader", "custom:Absent"], "has no class 'Absent'"),
        (["--reader", "custom:Fails", "--json"], "--json cannot be combined with --reader"),
        (["--reader-property", "a=b"], "requires --reader MODULE:CLASS"),
    ],
)
def test_a_reader_that_cannot_be_used_or_fails_ends_the_command_with_one_sentence(
    bootstrap: str, topic_name: Callable[[], str], tmp_path: Path, arguments: list[str], words: str
) -> None:
    topic = topic_name()
    (tmp_path / "custom.py").write_text(READERS, encoding="utf-8")
    done = run_produce(bootstrap, tmp_path, topic, *arguments, stdin="a\nb\n")
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    if "custom:Fails" in arguments and "--json" not in arguments:
        assert "(2 records written before it)" in done.stderr
        assert records_of(bootstrap, topic, 2) == [(None, b"a"), (None, b"b")]


def test_a_reader_is_no_more_than_some_records_ahead_and_all_arrive_in_order(
    bootstrap: str, topic_name: Callable[[], str], tmp_path: Path
) -> None:
    topic = topic_name()
    (tmp_path / "custom.py").write_text(READERS, encoding="utf-8")
    done = run_produce(
        bootstrap, tmp_path, topic, "--reader", "custom:Many", "--reader-property", "count=5000"
    )
    assert done.returncode == 0, done
    assert records_of(bootstrap, topic, 5000) == [(None, b"%d" % number) for number in range(5000)]


def test_interfaces_are_imported_without_the_server() -> None:
    program = (
        "import sys, tidelog.metrics.reporters, tidelog.client.record_reader, "
        "tidelog.security.acls.custom_authorizer; "
        "print(json.dumps(sorted(name for name in sys.modules if name.startswith('tidelog'))))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", f"import json, {program.removeprefix('import ')}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    server = ("tidelog.broker", "tidelog.storage", "tidelog.metadata", "tidelog.controller")
    assert not [name for name in json.loads(printed) if name.startswith(server)]
