"""ListTransactions: which transactions are asked for.

A pattern comes from anybody and is evaluated for all ids, so it is RE2's kind, which cannot take long, as in
Kafka (``coordinator/regex``). Ours knows ASCII; in an id, any character beyond that is matched by
``.`` and by what a negated set leaves, and by nothing else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidelog.coordinator.regex.regex_syntax import SyntaxFault, parse
from tidelog.coordinator.regex.topic_regex import TopicRegex
from tidelog.coordinator.transaction.state import BY_LABEL, TransactionState
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.errors import ErrorCode, KafkaError

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
        try:
            compiled = TopicRegex(parse(pattern)) if pattern else None
        except (SyntaxFault, RecursionError) as error:
            why = str(error) if isinstance(error, SyntaxFault) else "nested too deeply"
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"Transaction ID pattern `{pattern}` is not a valid regular expression: {why}.",
            ) from error
        return cls(
            frozenset(BY_LABEL[name] for name in states if name in BY_LABEL),
            tuple(dict.fromkeys(name for name in states if name not in BY_LABEL)),
            frozenset(producer_ids),
            min_duration_ms,
            compiled,
        )

    def matches(self, transaction: Transaction, now_ms: int) -> bool:
        """Whether ``transaction`` is to be listed."""
        if transaction.state is TransactionState.DEAD:
            return False
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if (self.states or self.unknown_states) and transaction.state not in self.states:
            return False
        if self.min_duration_ms >= 0 and now_ms - transaction.start_ms <= self.min_duration_ms:
            return False
        if self.pattern is None:
            return True
        return self.pattern.matches(_BEYOND_ASCII.sub("\x01", transaction.transactional_id))
