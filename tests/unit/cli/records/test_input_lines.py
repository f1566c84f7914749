from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from tidelog.cli.records.input_lines import input_lines

CASES = [
    (b"", []),
    (b"a\nb\n", [b"a", b"b"]),
    (b"a\r\n\nlast", [b"a", b"", b"last"]),
    (b"x" * 200_000 + b"\ny", [b"x" * 200_000, b"y"]),
]


async def collect(fd: int) -> list[bytes]:
    return [line async for line in input_lines(fd)]


@pytest.mark.parametrize(("content", "expected"), CASES)
def test_lines_of_a_file(tmp_path: Path, content: bytes, expected: list[bytes]) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    with path.open("rb") as file:
        assert asyncio.run(collect(file.fileno())) == expected


@pytest.mark.parametrize(("content", "expected"), CASES)
def test_lines_of_a_pipe(content: bytes, expected: list[bytes]) -> None:
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(content)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert asyncio.run(collect(reading)) == expected
    finally:
        writer.join()
        os.close(reading)


def test_a_line_comes_as_soon_as_it_is_typed() -> None:
    reading, writing = os.pipe()

    async def main() -> list[bytes]:
        lines = input_lines(reading)
        os.write(writing, b"first\nsec")
        found = [await anext(lines)]
        os.write(writing, b"ond\n")
        found.append(await anext(lines))
        await lines.aclose()  # type: ignore[attr-defined]
        return found

    try:
        assert asyncio.run(main()) == [b"first", b"second"]
    finally:
        os.close(reading)
        os.close(writing)
