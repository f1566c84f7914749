"""A foreign client as a process that takes one JSON request per line and answers one JSON line.

All clients answer the same operations, so one suite (test_clients.py) serves them all, and a client's gaps
are declared (clients.py), not found by chance. Bytes travel as base64, absent bytes as null.

| operation | fields | answer |
|---|---|---|
| version | | version of the client library |
| produce | topic, partition, acks, codec, idempotent, records | the offset of each record (-1 with acks=0) |
| consume | topic, partition, offset or `earliest`/`latest`, count, timeout_ms | records |
| position | topic, partition, at: `earliest`, `latest`, `max_timestamp` or a timestamp | offset, timestamp |
| restore | topic, partition, isolation, timeout_ms | position, end, count (Java and librdkafka only) |
| stream | topic, partitions, count, size, acks, codec, idempotent | received, ordered |
| create_topic | topic, partitions, replication, configs, validate_only | topic_id where the client shows it |
| describe_topic, list_topics, delete_topic, create_partitions | topic, total | |
| describe_configs, alter_configs, replace_configs | resource, name, set, append, subtract, delete | |
| delete_records | topic, partition, before | low_watermark |
| cluster, features, describe_log_dirs, describe_producers, elect_leaders, move_log_dir, epoch_end | | |

A driver is started with the address of its broker, or with `each`: then every request has an `address` and a
`security`, which says how one connects (test_secured_clients.py).

A record is `{key, value, headers: [[name, value]], timestamp}`; consumed ones have `offset` too.
"""

from __future__ import annotations

import base64
import json
import select
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foreign import toolchain

from tidelog.errors import ErrorCode

ANSWER_TIMEOUT_S = 60.0


class OperationFailed(Exception):
    """What the client reported, under Kafka's own name of the error."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


@dataclass(frozen=True)
class Client:
    """A client under test: how its driver is started, and what it cannot do, with the reason."""

    name: str
    command: Callable[[], list[str]]
    lacks: dict[str, str] = field(default_factory=dict)


class Driver:
    """A running driver process, connected to one broker."""

    def __init__(self, client: Client, address: str, log: Path) -> None:
        self.client = client
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*client.command(), address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=toolchain.ROOT,
            )

    def __call__(self, operation: str, **fields: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": operation, **fields}).encode() + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.close()
            raise RuntimeError(
                f"the {self.client.name} driver {'died' if ready else 'hangs'} on {operation}:\n"
                + self._log.read_text(errors="replace")[-2000:]
            )
        answer = json.loads(line)
        if "error" in answer:
            error = answer["error"]
            raise OperationFailed(error.get("name") or _name_of(error["code"]), error["message"])
        return answer["ok"]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_NAMES = {int(each): each.name for each in ErrorCode}


def _name_of(code: int) -> str:
    return _NAMES.get(code, f"CLIENT_ERROR_{code}")


def b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def unb64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
