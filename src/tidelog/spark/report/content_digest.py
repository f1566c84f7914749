"""The content of the rows that a task has written, as three numbers; ``write.write_digest`` computes them."""

from __future__ import annotations

from typing import NamedTuple

MASK_64 = (1 << 64) - 1


class ContentDigest(NamedTuple):
    """How many rows, and what is in them; digests of parts can be added."""

    rows: int = 0
    checksum: int = 0
    squares: int = 0

    def plus(self, other: ContentDigest) -> ContentDigest:
        """The digest of both."""
        return ContentDigest(
            self.rows + other.rows,
            (self.checksum + other.checksum) & MASK_64,
            (self.squares + other.squares) & MASK_64,
        )

    @property
    def text(self) -> str:
        """Short, for records and messages."""
        return f"{self.checksum:016x}{self.squares:016x}"

    @classmethod
    def of(cls, rows: int, text: str) -> ContentDigest:
        """The digest that :attr:`text` stands for."""
        return cls(rows, int(text[:16], 16), int(text[16:], 16))
