"""The clients' record codec: batches of format 2 built and read at the speed of C, from one source.

``record_writer``, ``record_reader`` and their columnar counterparts (see ``records/column_codec``) are plain
Python that Cython also compiles (its pure-Python mode). Where the package was installed with a compiler, the
compiled modules are what an import finds; everywhere else the same files run as they are and do the same,
slower. ``COMPILED`` tells which is in use. The broker and the tools use ``records/record``.

This is the face of both halves, and what the clients import.
"""

from __future__ import annotations

from tidelog.records.record_reader import (
    COMPILED,
    BatchReader,
    ConsumerRecord,
    RawRecord,
    decode_consumer_records,
    decode_records,
)
from tidelog.records.record_writer import BatchBuilder, restamp, split

__all__ = [
    "COMPILED",
    "BatchBuilder",
    "BatchReader",
    "ConsumerRecord",
    "RawRecord",
    "decode_consumer_records",
    "decode_records",
    "restamp",
    "split",
]
