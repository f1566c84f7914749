"""ListTransactions: which transactions are asked for.

A pattern comes from anybody and is evaluated for all ids, so it is RE2's kind, as in Kafka, and matched in
slices (``regex``). Ours knows ASCII; in an id, any character beyond that is matched by
``.`` and by what a negated set leaves, and by nothing else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidelog.coordinator.transaction.state import BY_LABEL, TransactionState
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.regex.topic_regex import TopicRegex, compile_regex
from tidelog.scheduling.slices import Slices

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


class TransactionFilter(NamedTuple):
    """All conditions must hold; an empty one holds for everything."""

    states: frozenset[TransactionState]
    unknown_states: tuple[str, ...]
    """Names of states that there are not: nothing is in them."""
    producer_ids: frozenset[int]
    min_duration_ms: int
    """Negative if the age does not matter."""
    pattern: TopicRegex | None

    @classmethod
    def parse(
        cls, states: list[str], producer_ids: list[int], min_duration_ms: int, pattern: str | None
    ) -> TransactionFilter:
        """The filter of a request; raises INVALID_REGULAR_EXPRESSION."""
        return cls(
            frozenset(BY_LABEL[name] for name in states if name in BY_LABEL),
            tuple(dict.fromkeys(name for name in states if name not in BY_LABEL)),
            frozenset(producer_ids),
            min_duration_ms,
            compile_regex(pattern, "Transaction ID pattern") if pattern else None,
        )

    def matches(self, transaction: Transaction, now_ms: int) -> bool:
        """Whether ``transaction`` is to be listed, if its id is."""
        if transaction.state is TransactionState.DEAD:
            return False
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if (self.states or self.unknown_states) and transaction.state not in self.states:
            return False
        return self.min_duration_ms < 0 or now_ms - transaction.start_ms > self.min_duration_ms

    def matching_id(self, transactional_id: str) -> Slices[bool]:
        """Whether the pattern matches an id, which may be long."""
        if self.pattern is None:
            return True
        return (yield from self.pattern.matching(_BEYOND_ASCII.sub("\x01", transactional_id)))
