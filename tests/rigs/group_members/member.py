"""A member of a consumer group as the test sees it: a process with a line to it, and what it told so far.

Python clients come out of a fork server that has the libraries loaded (a hundredth of a second each); members
in other languages are commands whose standard input and output are the line (tests/compat). Either may be
killed, stopped for a while by a signal, told to stop polling, or told to leave.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Place = tuple[str, int]
"""A topic and a partition."""

END_TIMEOUT_S = 20.0

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "tests.rigs.group_members.python_member"])


class Running(Protocol):
    """The process behind a member."""

    @property
    def pid(self) -> int | None: ...

    def kill(self) -> None: ...


@dataclass(frozen=True)
class Event:
    """Something that happened to a member."""

    at: float
    kind: str
    member: Member
    fields: dict[str, Any]

    @property
    def places(self) -> list[Place]:
        return [(topic, partition) for topic, partition in self.fields.get("partitions", [])]

    def __str__(self) -> str:
        shown = {name: value for name, value in self.fields.items() if name != "records"}
        shown |= {"records": len(self.fields["records"])} if "records" in self.fields else {}
        return f"{self.at:.1f} {self.member.name} {self.kind} {shown or ''}"


class Member:
    """One member; `pump` reads what it told."""

    def __init__(self, name: str, running: Running, reading: int, writing: int) -> None:
        self.name = name
        self.events: list[Event] = []
        self.assignment: set[Place] = set()
        self.delivered: list[tuple[Place, int]] = []
        self.reading = reading
        self._running = running
        self._writing = writing
        self._pending = b""
        self.gone = False
        os.set_blocking(reading, False)

    @property
    def ours(self) -> bool:
        """Whether the client is ours: more is asked of it than of others."""
        return self.name.startswith("tidelog")

    @property
    def pid(self) -> int:
        assert self._running.pid is not None
        return self._running.pid

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)

    def check_losses(self) -> None:
        """It was told that it lost its partitions, each time once: what is lost twice was got back between.

        A machine that stands still for a moment may well put a member out a second time.
        """
        held: set[Place] = set()
        losses = 0
        for event in self.events:
            if event.kind == "assigned":
                held |= set(event.places)
            elif event.kind == "revoked":
                held -= set(event.places)
            elif event.kind == "lost":
                assert event.places, f"{self.name} was told that it lost nothing"
                assert held >= set(event.places), f"{self.name} lost {event.places} and had {sorted(held)}"
                held -= set(event.places)
                losses += 1
        assert losses, f"{self.name} was never told that it lost its partitions"

    @property
    def failures(self) -> list[str]:
        return [
            f"{each.fields['doing']}: {each.fields['error']}" for each in self.events if each.kind == "failed"
        ]

    def pump(self) -> None:
        """Take in what the member told since."""
        while not self.gone:
            try:
                data = os.read(self.reading, 1 << 20)
            except BlockingIOError:
                return
            except ConnectionResetError:  # a killed process with orders unread
                data = b""
            self.gone = not data
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                fields = json.loads(line)
                self._note(Event(fields.pop("at"), fields.pop("event"), self, fields))

    def _note(self, event: Event) -> None:
        self.events.append(event)
        match event.kind:
            case "assigned":
                self.assignment |= set(event.places)
            case "revoked" | "lost":
                self.assignment -= set(event.places)
            case "ended":
                self.assignment = set()
            case "records":
                self.delivered += [((topic, at), offset) for topic, at, offset in event.fields["records"]]

    def tell(self, op: str, **fields: Any) -> None:
        os.write(self._writing, json.dumps({"op": op, **fields}).encode() + b"\n")

    def idle(self) -> None:
        """No more polls; the library's background work goes on."""
        self.tell("idle")

    def work(self) -> None:
        self.tell("work")

    def leave(self) -> None:
        """Close the client, which leaves the group, and wait for the end of the process."""
        self.tell("close")
        deadline = time.monotonic() + END_TIMEOUT_S
        while not self.gone:
            assert time.monotonic() < deadline, f"{self.name} did not close within {END_TIMEOUT_S} s"
            self.pump()
            time.sleep(0.005)
        self._end()

    def kill(self) -> None:
        """SIGKILL: the process and its connections are gone, the broker was not told."""
        if not self._reaped:
            self._running.kill()
            self._end()
            self.pump()

    def freeze(self) -> None:
        """SIGSTOP: the connections stay, nothing is said on them any more."""
        os.kill(self.pid, signal.SIGSTOP)
        self.pump()
        self._note(Event(time.time() * 1000, "ended", self, {}))

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    _reaped = False

    def _end(self) -> None:
        self._note(Event(time.time() * 1000, "ended", self, {}))
        if isinstance(self._running, subprocess.Popen):
            self._running.wait(END_TIMEOUT_S)
        else:
            self._running.join(END_TIMEOUT_S)  # type: ignore[attr-defined]
        self._reaped = True

    def close_line(self) -> None:
        """The end: whatever the process still does, it is killed, and its line closed."""
        self.kill()
        for descriptor in {self.reading, self._writing}:
            os.close(descriptor)


def python_member(settings: dict[str, Any]) -> Member:
    """A member with one of the Python clients."""
    from tests.rigs.group_members import python_member as child

    ours, theirs = socket.socketpair()
    process = _CONTEXT.Process(target=child.run, args=(settings, theirs), daemon=True)
    process.start()
    theirs.close()
    descriptor = ours.detach()
    return Member(settings["name"], process, descriptor, descriptor)


def command_member(command: Sequence[str], settings: dict[str, Any]) -> Member:
    """A member in another language: the command gets the settings as its last argument."""
    process = subprocess.Popen(
        [*command, json.dumps(settings)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdin is not None
    assert process.stdout is not None
    reading, writing = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
    process.stdin.close()
    process.stdout.close()
    return Member(settings["name"], process, reading, writing)
