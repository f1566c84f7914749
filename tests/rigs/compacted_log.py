"""A compacted log without a broker: appended to, compacted when the test says so, read back."""

from __future__ import annotations

from pathlib import Path

from tests.rigs.clock import ManualClock

from tidelog.records.batch import BatchHeader, iter_batches
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.storage.cleaner.cleaner_options import CleanerOptions
from tidelog.storage.cleaner.cleaning_pass import compact_now
from tidelog.storage.disk import REAL_DISK, Disk
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig
from tidelog.storage.producers.producer_state import AppendOrigin

DAY_MS = 86_400_000
COMPACT = LogConfig(cleanup_policy=("compact",), delete_retention_ms=DAY_MS, index_interval_bytes=64)


class CompactedLog:
    """A log on a real directory, with the few things that tests of compaction do to it."""

    def __init__(
        self, directory: Path, config: LogConfig = COMPACT, disk: Disk = REAL_DISK, name: str = "t-0"
    ) -> None:
        self.clock = ManualClock()
        self.disk = disk
        self.log = Log.open(LogContext(directory / name, config, self.clock, disk), clean_shutdown=True)
        self.cleaned_up_to: int | None = None

    def append(self, *pairs: tuple[bytes | None, bytes | None], **batch: object) -> None:
        records = [Record(timestamp=self.clock.time_ms(), key=key, value=value) for key, value in pairs]
        self.log.append_as_leader(bytearray(encode_batch(records, **batch)), 0)  # type: ignore[arg-type]
        self.log.update_high_watermark(self.log.log_end_offset)

    def append_at(self, *records: tuple[int, bytes, bytes | None]) -> None:
        """Append one batch of records with these timestamps."""
        batch = encode_batch([Record(timestamp=at, key=key, value=value) for at, key, value in records])
        self.log.append_as_leader(bytearray(batch), 0)
        self.log.update_high_watermark(self.log.log_end_offset)

    def end_transaction(self, control_type: ControlType, producer_id: int, epoch: int = 0) -> None:
        marker = encode_end_txn_marker(
            EndTxnMarker(control_type, 0),
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=self.clock.time_ms(),
        )
        self.log.append_as_leader(bytearray(marker), 0, origin=AppendOrigin.COORDINATOR)
        self.log.update_high_watermark(self.log.log_end_offset)

    def compact(self, options: CleanerOptions | None = None) -> None:
        done = compact_now(self.log, clock=self.clock, cleaned_up_to=self.cleaned_up_to, options=options)
        if done is not None:
            self.cleaned_up_to = done.end_offset

    def compact_again(self) -> None:
        """A pass over everything, when all delete horizons are over."""
        self.clock.advance(2 * DAY_MS)
        self.cleaned_up_to = 0
        self.compact()

    def reopen(self, *, clean: bool = False) -> None:
        self.log.close(clean=clean)
        directory, config = self.log.directory, self.log.config
        self.log = Log.open(LogContext(directory, config, self.clock, self.disk), clean_shutdown=clean)
        self.log.update_high_watermark(self.log.log_end_offset)

    def batches(self) -> list[tuple[BatchHeader, list[Record]]]:
        found = []
        for segment in self.log.segments:
            data = segment.read_bytes(0, segment.size)
            assert sum(header.size_bytes for _, header in iter_batches(data)) == segment.size
            found += [(header, decode_batch(data, pos)) for pos, header in iter_batches(data)]
        return found

    def records(self) -> list[Record]:
        return [record for header, records in self.batches() if not header.is_control for record in records]

    def table(self) -> dict[int, tuple[bytes | None, bytes | None]]:
        return {record.offset: (record.key, record.value) for record in self.records()}

    def read_all(self) -> list[Record]:
        """What a consumer sees, through offsets and indexes."""
        found: list[Record] = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            data = self.log.read_bytes(offset, 400, isolation=Isolation.LOG_END)
            if not data:
                break
            for pos, header in iter_batches(data):
                if not header.is_control:
                    found += [record for record in decode_batch(data, pos) if record.offset >= offset]
                offset = header.next_offset
        return found


def in_transaction(producer_id: int, sequence: int, epoch: int = 0) -> dict[str, object]:
    return {
        "transactional": True,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "base_sequence": sequence,
    }
