"""The answers that a connection still has to send: files and bytes, in order, however little is taken."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.broker.network.answer import Part
from tidelog.broker.network.outbox import Outbox, read_if_small
from tidelog.storage.disk import REAL_DISK, LogFile
from tidelog.wire.fetch import FileRange

CONTENT = bytes(range(256)) * 1024
SMALL, LARGE = 1000, 200_000


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "log").write_bytes(CONTENT)
    opened = os.open(tmp_path / "log", os.O_RDONLY)
    yield opened
    os.close(opened)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def drain(outbox: Outbox, theirs: socket.socket) -> bytes:
    received = bytearray()
    done = False
    while not done:
        done = outbox.flush()
        try:
            while chunk := theirs.recv(1 << 16):
                received += chunk
        except BlockingIOError:
            continue
    return bytes(received)


def answer(fd: int) -> list[Part]:
    return [
        b"one",
        FileRange(fd, 5, SMALL),
        b"two",
        FileRange(fd, 77, LARGE),
        b"three",
        FileRange(fd, 9, SMALL),
    ]


def in_memory(parts: list[Part]) -> bytes:
    return b"".join(
        part if isinstance(part, bytes) else os.pread(part.fd, part.length, part.position) for part in parts
    )


def test_files_and_bytes_leave_in_order_through_a_socket_that_takes_little(
    fd: int, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    outbox = Outbox(ours)
    outbox.put(answer(fd))
    outbox.put(b"next")
    assert outbox
    assert drain(outbox, theirs) == in_memory(answer(fd)) + b"next"
    assert not outbox


def test_a_range_holds_its_file_until_it_has_gone(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    (tmp_path / "log").write_bytes(CONTENT)
    file = LogFile(os.open(tmp_path / "log", os.O_RDONLY), REAL_DISK)
    still_there = weakref.ref(file)
    ours, theirs = pair
    outbox = Outbox(ours)
    outbox.put([b"head", FileRange(file.fd, 77, LARGE, file)])
    (tmp_path / "log").unlink()
    del file
    assert still_there() is not None
    assert drain(outbox, theirs) == b"head" + CONTENT[77 : 77 + LARGE]
    assert still_there() is None


def test_what_is_unsent_is_let_go_with_its_file(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    (tmp_path / "log").write_bytes(CONTENT * 20)
    file = LogFile(os.open(tmp_path / "log", os.O_RDONLY), REAL_DISK)
    still_there = weakref.ref(file)
    ours, _ = pair
    outbox = Outbox(ours)
    outbox.put([FileRange(file.fd, 0, len(CONTENT) * 20, file)])
    del file
    assert not outbox.flush()
    assert still_there() is not None
    outbox.clear()
    assert still_there() is None


def test_answers_go_together_until_they_are_many_bytes(
    fd: int, pair: tuple[socket.socket, socket.socket]
) -> None:
    outbox = Outbox(pair[0])
    for _ in range(10):
        outbox.put([b"head", FileRange(fd, 0, LARGE), b"tail"])
    assert not outbox.is_due
    for _ in range(80):
        outbox.put([b"head", FileRange(fd, 0, LARGE), b"tail"])
    assert outbox.is_due
    outbox.flush()
    assert not outbox.is_due
    outbox.put(bytes(600_000))
    assert outbox.is_due


@pytest.mark.parametrize("sent", [0, 1, 3, 4, 6, 10])
def test_the_rest_of_what_was_sent_in_part_follows(
    sent: int, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    outbox = Outbox(ours)
    outbox.put_rest([b"abc", b"", b"def", b"ghij"], sent)
    assert bool(outbox) == (sent < 10)
    assert drain(outbox, theirs) == b"abcdefghij"[sent:]


def test_only_answers_without_a_large_file_are_read_as_a_whole(fd: int) -> None:
    assert read_if_small(answer(fd)) is None
    small: list[Part] = [b"head", FileRange(fd, 5, SMALL), b"tail"]
    assert read_if_small(small) == [b"head", CONTENT[5 : 5 + SMALL], b"tail"]


def test_a_file_that_is_shorter_than_the_answer_says_is_not_sent_in_part(fd: int) -> None:
    short: list[Part] = [b"head", FileRange(fd, len(CONTENT) - 10, SMALL), b"tail"]
    with pytest.raises(OSError, match="the file ended 990 bytes before the range"):
        read_if_small(short)
