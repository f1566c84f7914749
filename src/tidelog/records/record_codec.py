"""The clients' record codec: batches of format 2 built and read at the speed of C, from one source.

``record_writer``, ``record_reader`` and their columnar counterparts (see ``records/column_codec``) are plain
Python that Cython also compiles (its pure-Python mode). Where the package was installed with a compiler, the
compiled modules are what an import finds; everywhere else the same files run as they are and do the same,
slower. ``COMPILED`` tells which is in use. The broker and the tools use ``records/record``.

This is the face of both halves, and what the clients import. ``ConsumerRecord`` is generic here, for type
checkers only: a compiled class cannot have ``Generic`` as a base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.records.record_reader import (
    COMPILED,
    BatchReader,
    RawRecord,
    decode_consumer_records,
    decode_records,
)
from tidelog.records.record_writer import BatchBuilder, restamp, split

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Generic

    from typing_extensions import TypeVar

    from tidelog.records.record import RecordHeader
    from tidelog.records.record_reader import ConsumerRecord as UntypedConsumerRecord

    K_co = TypeVar("K_co", covariant=True, default=Any)
    V_co = TypeVar("V_co", covariant=True, default=Any)

    class ConsumerRecord(UntypedConsumerRecord, Generic[K_co, V_co]):
        """One record as a consumer returns it; ``ConsumerRecord[K, V]`` where its types are known.

        ``key`` is None where the record has no key. ``value`` is typed as ``V`` alone, although a tombstone
        of a compacted topic has None: read such topics with a ``Consumer[K, V | None]``.
        """

        key: K_co | None
        value: V_co

        def __init__(
            self,
            topic: str,
            partition: int,
            offset: int,
            timestamp: int = -1,
            timestamp_type: int = 0,
            key: K_co | None = None,
            value: V_co = ...,
            headers: Sequence[RecordHeader] = (),
            leader_epoch: int | None = None,
        ) -> None: ...
else:
    from tidelog.records.record_reader import ConsumerRecord

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
