"""What keeps a client from working, for as long as it does: so that no client waits in silence.

Owned by ``client._network.cluster``, one of each per client:

    ConnectionFailures   addresses that cannot be connected to; a warning at once, from ``node_connection``
    OngoingErrors        operations that are retried in the background (metadata, coordinator, fetches,
                         writes); a warning once one has lasted for a while, unless a connection is the cause,
                         which has been reported already

Both warn again at growing intervals for as long as the failure lasts. ``longest`` is what
``ongoing_error()`` returns, and ``reason`` is what timeouts name as their cause.

Everything is written on the client's loop; ``longest`` and ``current`` may be read from any thread.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from tidelog.client._address import Address
from tidelog.client.errors import BrokerUnreachableError, ClientError

logger = logging.getLogger(__name__)

PATIENCE_S = 10.0
"""For how long an operation may fail before it is worth a warning: elections and restarts end sooner."""

_WARN_AFTER_S = (10.0, 30.0, 60.0)
_LONGEST_PAUSE_S = 600.0
# Longer than any request takes: what is not noted for so long is not tried any more (its partitions moved).
_STALE_S = 90.0


@dataclass(frozen=True, slots=True)
class OngoingError:
    """What keeps a client from working now."""

    error: str
    since: datetime.datetime
    """When it began, in UTC."""
    seconds: float
    """For how long it has lasted, up to the last failed attempt."""

    def as_dict(self) -> dict[str, object]:
        """The same for JSON."""
        return {"error": self.error, "since": self.since.isoformat(), "seconds": round(self.seconds, 3)}


class _Lasting:
    """One failure from its first sign to its end, and when to warn of it."""

    __slots__ = ("error", "noted_at", "since", "warn_at", "warned")

    def __init__(self, now: float, patience_s: float) -> None:
        self.since = self.noted_at = now
        self.warn_at = now + patience_s
        self.warned = False
        self.error: object = ""

    def note(self, now: float, error: object) -> bool:
        """It has failed again; whether to warn of it."""
        self.error, self.noted_at = error, now
        if now < self.warn_at:
            return False
        self.warned = True
        lasted = now - self.since
        pause = next((each - lasted for each in _WARN_AFTER_S if each > lasted), None)
        self.warn_at = now + (min(lasted, _LONGEST_PAUSE_S) if pause is None else pause)
        return True

    @property
    def seconds(self) -> float:
        return self.noted_at - self.since


class ConnectionFailures:
    """The addresses that one client cannot connect to; each is reported by itself, over all channels."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lasting: dict[Address, _Lasting] = {}
        self._raised = 0

    def failed(self, address: Address, error: Exception, hint: str = "") -> None:
        """An attempt to connect has failed; ``hint`` is what else the reader should check."""
        if self._raised:
            return
        if isinstance(error, ClientError):
            error.is_reported = True
        now = self._clock()
        lasting = self._lasting.setdefault(address, _Lasting(now, 0.0))
        if lasting.note(now, error):
            lasted = f" (for {lasting.seconds:.0f} s now)" if lasting.seconds >= 1 else ""
            logger.warning("%s%s%s", _printable(error), hint, lasted)

    def reached(self, address: Address) -> None:
        """A connection is open."""
        lasting = self._lasting.pop(address, None) if self._lasting else None
        if lasting is not None:
            logger.info("connected to %s after %.0f s", address, self._clock() - lasting.since)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Within the block a failure is raised to the caller at once, and not reported as well."""
        self._raised += 1
        try:
            yield
        finally:
            self._raised -= 1


class OngoingErrors:
    """The errors of one client that have not passed yet, by what they are about."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lasting: dict[Hashable, _Lasting] = {}

    def note(self, subject: Hashable, error: object, *, patience_s: float = PATIENCE_S) -> None:
        """``subject`` failed again; a warning names it once that has lasted for ``patience_s``."""
        now = self._clock()
        lasting = self._lasting.get(subject)
        if lasting is None:
            lasting = self._lasting[subject] = _Lasting(now, patience_s)
        # One that sums up several addresses is made of failures that were reported one by one.
        is_reported = isinstance(error, BrokerUnreachableError) or getattr(error, "is_reported", False)
        if lasting.note(now, error) and not is_reported:
            logger.warning(
                "%s: no success for %.0f s, still trying: %s", subject, lasting.seconds, _printable(error)
            )

    def over(self, subject: Hashable) -> None:
        """``subject`` has worked, or is not wanted any more."""
        lasting = self._lasting.pop(subject, None) if self._lasting else None
        if lasting is not None and lasting.warned:
            logger.info("%s: works again after %.0f s", subject, self._clock() - lasting.since)

    @property
    def longest(self) -> tuple[float, str] | None:
        """For how many seconds the longest error has lasted, by its last sign, and what it is."""
        longest = self._longest()
        return None if longest is None else (longest.seconds, str(longest.error))

    @property
    def current(self) -> OngoingError | None:
        """The longest error, with the time at which it began."""
        longest = self._longest()
        if longest is None:
            return None
        ago = datetime.timedelta(seconds=self._clock() - longest.since)
        return OngoingError(str(longest.error), datetime.datetime.now(datetime.UTC) - ago, longest.seconds)

    @property
    def reason(self) -> str | None:
        """The newest error in words, None if there is none."""
        newest = max(list(self._lasting.values()), key=lambda each: each.since, default=None)
        return None if newest is None else str(newest.error)

    def _longest(self) -> _Lasting | None:
        now = self._clock()
        # A list at once: the loop may add one meanwhile.
        current = [each for each in list(self._lasting.values()) if now - each.noted_at < _STALE_S]
        return max(current, key=lambda each: each.seconds, default=None)


def _printable(error: object) -> str:
    """An error as one line of a log: some hold text that a broker has sent."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(error))
