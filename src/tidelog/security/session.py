"""Who is at the other end of a connection: made when it is opened, and again when it has authenticated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidelog.security.principal import ANONYMOUS, Principal


@dataclass(slots=True)
class Session:
    """What is known of a connection's client."""

    host: str
    """Its IP address as text, as access rules name hosts."""
    principal: Principal = ANONYMOUS
    security_protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    """By which SASL mechanism it has proven who it is."""
    by_token: bool = False
    """Whether that was with a delegation token: such a client may not ask for another one."""
    expires_at_s: float | None = None
    """When, on the loop's clock, it has to prove itself again; ``None`` if never."""
    decisions: dict[object, bool] = field(default_factory=dict, repr=False)
    """What the authorizer has said of this principal from this host; it empties it when rules change."""
    known_payer: tuple[Any, Any, Any, bytes, int] | None = field(default=None, repr=False, compare=False)
    """Who has paid for the request before, and how that was read in it (``quotas/payer``)."""
