"""What every SASL mechanism offers to whoever runs the dialogue.

A :class:`Mechanism` belongs to a listener and begins one :class:`Exchange` for each login. An exchange takes
the client's messages one by one and says what to answer; it ends with who the client is (:class:`Proven`), or
with :class:`Refused`. What it refuses is for the log: clients are told one sentence for all reasons, so that
nobody learns from it which half of a name and a password was right.

``is_slow`` says that a step may take more than a millisecond (signatures, a directory, a ticket): it then
runs in a thread. Where that can be said of single messages only, the step itself comes back as a
:class:`SlowStep`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog.security.principal import Principal


class Refused(TidelogError):
    """A login that failed; the text says why, to the log and never to the client, and holds no secret."""


@dataclass(frozen=True, slots=True)
class Proven:
    """Who a client is."""

    principal: Principal
    by_token: bool = False
    """Whether a delegation token proved it."""
    expires_at_ms: float | None = None
    """When, on the wall clock, the credential ends; ``None`` for one that does not."""


class Step(NamedTuple):
    """What one message of the client came to."""

    answer: bytes
    proven: Proven | None = None
    """Set when the dialogue is over; the answer is its last word."""
    is_silent: bool = False
    """Whether there is no answer at all, which to a client of bare messages is not an empty one."""


class SlowStep(NamedTuple):
    """A step that would keep others waiting: what is left of it is for a thread."""

    finish: Callable[[], Step]
    """Raises :class:`Refused`, too."""


class Exchange(Protocol):
    """One login."""

    def step(self, message: bytes) -> Step | SlowStep:
        """Take the client's next message; raises :class:`Refused`."""


class Mechanism(Protocol):
    """A mechanism as one listener offers it."""

    @property
    def name(self) -> str:
        """As clients ask for it, such as ``SCRAM-SHA-256``."""

    @property
    def is_slow(self) -> bool:
        """Whether a step may keep others waiting."""

    def begin(self) -> Exchange:
        """A new login."""
