"""Records as `tidelog consume` writes them."""

from __future__ import annotations

from tidelog.cli.records.consume import text_line
from tidelog.client import ConsumerRecord


def test_names_of_headers_forge_no_lines_in_a_pipe() -> None:
    record = ConsumerRecord("orders", 0, 7, value=b"tea", headers=[("a\x1b[2J\nb", b"1\n")])
    write = text_line(key=False, headers=True, meta=False, separator="\t")
    assert write(record) == b"a\\x1b[2J\\nb=1\\n\ttea\n"
