"""What loading a log found and mended, for the log line that says so."""

from __future__ import annotations

from msgspec import Struct, field


class RecoveryReport(Struct):
    """Counted while a log is loaded; empty when there was nothing to do."""

    segments_scanned: int = 0
    bytes_scanned: int = 0
    bytes_truncated: int = 0
    truncated_because: str = ""
    segments_dropped: int = 0
    indexes_rebuilt: int = 0
    swaps_completed: int = 0
    files_removed: int = 0
    batches_replayed: int = 0
    log_end_offset: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def changed_anything(self) -> bool:
        """Whether the log is not as its last writer left it, indexes apart."""
        counts = self.bytes_truncated, self.segments_dropped, self.swaps_completed, self.files_removed
        return any(counts) or bool(self.notes)

    def __bool__(self) -> bool:
        return bool(self.segments_scanned) or self.changed_anything

    def __str__(self) -> str:
        parts = [f"checked {self.segments_scanned} segments ({self.bytes_scanned} bytes)"]
        if self.bytes_truncated:
            parts.append(f"cut off {self.bytes_truncated} bytes: {self.truncated_because}")
        if self.segments_dropped:
            parts.append(f"dropped {self.segments_dropped} segments behind that")
        if self.indexes_rebuilt:
            parts.append(f"rebuilt the indexes of {self.indexes_rebuilt} segments")
        if self.swaps_completed:
            parts.append(f"completed {self.swaps_completed} interrupted replacements by the cleaner")
        if self.files_removed:
            parts.append(f"removed {self.files_removed} leftover files")
        parts += self.notes
        parts.append(f"the log ends at offset {self.log_end_offset}")
        return "; ".join(parts)
