"""Which producers a partition asks the transaction coordinator about, before their first write (KIP-890).

A transaction that its coordinator does not know of in this partition would never end here, and hold readers
of committed records back for ever. So the first batch of a transaction needs a :class:`Verification`: it is
begun before the coordinator is asked, and still has to be the producer's when the answer is there and the
batch is appended. The first batch ends it, and so does any marker: an answer that was given about the
transaction before cannot let a batch in after its end.

It also remembers the lowest sequence number that was to be verified. If that batch is sent back with an
error that is tried again, the ones behind it must not slip in before it.

Memory only. Held by ``producer_state``; begun by ``broker/coordination/transaction_verification``.
"""

from __future__ import annotations

from tidelog.errors import ErrorCode, KafkaError


class Verification:
    """A question about one producer; each is different from any other."""

    __slots__ = ("adds_partitions", "begun_ms", "epoch", "lowest_sequence")

    def __init__(self, sequence: int, epoch: int, adds_partitions: bool, now_ms: int) -> None:
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.adds_partitions = adds_partitions
        """Whether the producer lets partitions be added by writing to them: transaction version 2."""
        self.begun_ms = now_ms

    def note(self, sequence: int, epoch: int) -> None:
        """Another batch of the producer is to be verified; a new epoch counts its sequence anew."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class Verifications:
    """The verifications of one partition, by producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def get(self, producer_id: int) -> Verification | None:
        """The producer's verification, if one is begun and not ended."""
        return self._by_producer.get(producer_id)

    def begin(
        self, producer_id: int, sequence: int, epoch: int, *, adds_partitions: bool, now_ms: int
    ) -> Verification:
        """Begin a verification, or go on with the one there is."""
        verification = self._by_producer.get(producer_id)
        if verification is None:
            verification = Verification(sequence, epoch, adds_partitions, now_ms)
            self._by_producer[producer_id] = verification
        verification.note(sequence, epoch)
        return verification

    def check_sequence(self, producer_id: int, sequence: int, known_batches: bool, where: str) -> None:
        """Refuse a client's batch that would overtake one which has not been written yet."""
        verification = self._by_producer.get(producer_id)
        if verification is None:
            return
        if verification.adds_partitions and sequence != 0 and not known_batches:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for {where}: {sequence} (incoming seq. number). Expected sequence "
                "0 for transactions v2 idempotent producer with no existing state.",
            )
        if sequence > verification.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for {where}: {sequence} (incoming seq. number), "
                f"{verification.lowest_sequence} (earliest seen sequence)",
            )

    def written(self, producer_id: int) -> None:
        """A batch of its transaction is in the log, which says from now on that it is open."""
        self._by_producer.pop(producer_id, None)

    def ended(self, producer_id: int, epoch: int) -> None:
        """A marker has ended a transaction; in version 2 it has the epoch of the next one, which goes on."""
        verification = self._by_producer.get(producer_id)
        if verification is not None and not (verification.adds_partitions and verification.epoch == epoch):
            del self._by_producer[producer_id]

    def remove_expired(self, begun_before_ms: int) -> None:
        """Forget verifications that nobody has ended for long."""
        for producer_id, verification in list(self._by_producer.items()):
            if verification.begun_ms <= begun_before_ms:
                del self._by_producer[producer_id]
