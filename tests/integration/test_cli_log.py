"""`tidelog log` beside a running broker and on what a killed one leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tidelog.testing.broker_process import BrokerProcess


def tidelog(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def verified(data_dir: Path) -> dict[str, Any]:
    _, out, _ = tidelog("log", "verify", data_dir, "--json")
    return {report["name"]: report for report in json.loads(out)["partitions"]}


def write(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True})
    for number in range(count):
        producer.produce("orders", b"value %d" % number * 1000, key=b"%d" % number)
        producer.poll(0)
        if number % 10 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0


def test_a_running_broker_s_directory_is_sound_and_a_torn_one_says_what_the_restart_then_does(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    options = {"log.segment.bytes": str(1 << 20)}
    with BrokerProcess(data_dir, options=options) as broker:
        write(broker.bootstrap, 400)
        code, out, err = tidelog("log", "verify", data_dir)
        assert (code, err) == (0, ""), out
        alive = verified(data_dir)["orders-0"]
        assert alive["records"] == 400
        assert alive["segments"] > 2
        files = sorted((data_dir / "orders-0").iterdir())
        code, _, err = tidelog("log", "dump", "--verify-index", *files)
        assert (code, err.splitlines()) == (0, [f"{path}:" for path in files])

        broker.kill()
        last = max((data_dir / "orders-0").glob("*.log"))
        with last.open("ab") as file:
            file.write(last.read_bytes()[:50])
        torn = verified(data_dir)["orders-0"]
        assert torn["damage"]
        assert f"truncate the log to offset {alive['end_offset']} " in torn["restart"]
        assert tidelog("log", "dump", last)[0] == 1

        broker.start()
        mended = verified(data_dir)["orders-0"]
        assert mended["sound"]
        assert mended["end_offset"] == alive["end_offset"]
