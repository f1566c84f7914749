from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import ConfigError
from tidelog.properties import parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a : b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a\tb", {"a": "b"}),
        ("a==b", {"a": "=b"}),
        ("a = : b", {"a": ": b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("  a=b  ", {"a": "b  "}),
        ("# a=b\n! c=d\n  # e=f\n\n g=h", {"g": "h"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=b\\\n   c", {"a": "bc"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b,\\\n# c", {"a": "b,# c"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a\\=b\\:c=d", {"a=b:c": "d"}),
        ("a=\\t\\n\\r\\f\\z", {"a": "\t\n\r\fz"}),
        ("a=C:\\\\data", {"a": "C:\\data"}),
        ("a=\\u00e9\\u20AC", {"a": "é€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=b#c", {"a": "b#c"}),
        ("listeners=PLAINTEXT://:9092,\\\n  SSL://:9093", {"listeners": "PLAINTEXT://:9092,SSL://:9093"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries


def test_files_may_be_utf8_or_latin1(tmp_path: Path) -> None:
    utf8, latin1, marked = tmp_path / "utf8", tmp_path / "latin1", tmp_path / "marked"
    utf8.write_bytes("a=é€".encode())
    latin1.write_bytes("a=é".encode("iso-8859-1"))
    marked.write_bytes("a=b".encode("utf-8-sig"))
    assert read_properties(utf8) == {"a": "é€"}
    assert read_properties(latin1) == {"a": "é"}
    assert read_properties(marked) == {"a": "b"}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.properties cannot be read: No such file or directory"):
        read_properties(tmp_path / "absent.properties")


def test_a_broken_unicode_escape_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("a=\\u12x4")
    with pytest.raises(ConfigError, match=r"server\.properties: .*12x4 is not a"):
        read_properties(path)


def _escape(text: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H"))


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=10), max_size=4))
def test_everything_written_with_escapes_reads_back(entries: dict[str, str]) -> None:
    text = "\n".join(f"{_escape(key)}={_escape(value)}" for key, value in entries.items())
    assert parse_properties(text) == entries
