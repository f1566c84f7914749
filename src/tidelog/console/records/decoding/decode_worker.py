"""The process that decodes fields for the console: ``python -m`` with the name of this module.

Schemas come from whoever may register one, and fields from whoever may produce: each may be made to take all
memory and time. So the process bounds its memory before anything else, and for each schema and each field its
processor time: the kernel ends it when that is used up. What it is asked and answers is in ``frames``.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from tidelog.console.records.decoding.frames import Answer, Bounds, Compile, Decode, Task
from tidelog.console.records.decoding.problem import DecodeProblem
from tidelog.console.records.filter_worker import framed, read_frame
from tidelog.decode_errors import DECODE_ERRORS


class ReadySchema(Protocol):
    """A schema that was made ready."""

    def decode(self, data: bytes, indexes: bytes | None) -> tuple[str, Any]:
        """The name of a record or message, and what it says."""


def main() -> int:
    """Decode until the console hangs up."""
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    first = read_frame(incoming)
    if first is None:
        return 0
    bounds = msgspec.msgpack.decode(first, type=Bounds)
    resource.setrlimit(resource.RLIMIT_AS, (bounds.memory_bytes, bounds.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    worker = Worker()
    asked = msgspec.msgpack.Decoder(Compile | Decode)

    def answer(seconds: float, make: Callable[[], Answer]) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            made = make()
        except DecodeProblem as problem:
            made = Answer(problem=str(problem))
        except (MemoryError, RecursionError):
            made = Answer(problem="its declared size or depth exceeds the limit")
        except (
            Exception
        ) as error:  # of a library, over something that nobody thought of: the next one is decoded
            made = Answer(problem=f"it cannot be decoded ({type(error).__name__})")
        signal.setitimer(signal.ITIMER_PROF, 0)
        outgoing.write(framed(msgspec.msgpack.encode(made)))
        outgoing.flush()

    while (frame := read_frame(incoming)) is not None:
        order = asked.decode(frame)
        if isinstance(order, Compile):
            answer(bounds.schema_cpu_s, lambda given=order: worker.compile(given))  # type: ignore[misc]
            continue
        for task in order.tasks:
            answer(bounds.field_cpu_s, lambda given=task: worker.decode(given))  # type: ignore[misc]
    return 0


class Worker:
    """Holds schemas that are ready; libraries are loaded when they are first needed."""

    def __init__(self) -> None:
        self._schemas: dict[str, ReadySchema] = {}

    def compile(self, given: Compile) -> Answer:
        """Make a schema ready."""
        if given.type == "avro":
            from tidelog.console.records.decoding.avro import AvroSchema

            self._schemas[given.key] = AvroSchema(given.text, given.references)
        else:
            from tidelog.console.records.decoding.protobuf import ProtobufSchema

            self._schemas[given.key] = ProtobufSchema(given.text, given.references)
        return Answer()

    def decode(self, task: Task) -> Answer:
        """Decode a field."""
        from tidelog.console.records.decoding.plain_values import to_json

        found, name, value = self._value(task)
        if not found:
            return Answer()
        if isinstance(value, msgspec.Raw):
            return Answer(found, bytes(value), name=name)
        return Answer(found, to_json(value, task.most_bytes), name=name)

    def _value(self, task: Task) -> tuple[str, str, Any]:
        """The format that the field turned out to have, the name of its record, and what it says."""
        match task.format:
            case "avro" | "protobuf":
                return (task.format, *self._schemas[task.schema].decode(task.data, task.indexes))
            case "jsonschema":
                try:
                    task.data.decode("utf-8")  # which is not looked at below
                    return "jsonschema", "", msgspec.json.decode(task.data, type=msgspec.Raw)
                except DECODE_ERRORS:
                    raise DecodeProblem("it is not JSON, although its schema is a JSON Schema") from None
            case "internal":
                from tidelog.console.records.decoding.internal_topics import decode_internal

                return ("internal", *decode_internal(task.topic, task.data, task.of_key))
        from tidelog.console.records.decoding import binary

        match task.format:
            case "msgpack":
                return "msgpack", "", binary.decode_msgpack(task.data)
            case "cbor":
                return "cbor", "", binary.decode_cbor(task.data)
            case "binary":
                found, value = binary.decode_either(task.data)
                return found, "", value
        raise DecodeProblem(f"unknown format {task.format}")


if __name__ == "__main__":
    sys.exit(main())
