"""GSSAPI (RFC 4752) as Kafka's brokers speak it: a Kerberos ticket says who the client is.

    client   a token with its ticket             broker   a token that proves the broker's side, if the client
                                                          has asked for that; else the offer
    client   nothing                             broker   the offer: which layers of security there are
    client   its choice, and whom it acts as     broker   nothing

Offer and choice are wrapped, so that they cannot be changed on the way. No layer is offered: what is sent
behind the login is protected by TLS or not at all. Who the client is is what its ticket says, by the rules of
``auth_to_local``; whom it wants to act as is passed over, as in Kafka: some clients name the broker there.

Only Kerberos' own tokens are taken, none that choose between mechanisms first (SPNEGO).
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from tidelog.security.kerberos.auth_to_local import AuthToLocal, NoRuleAppliesError
from tidelog.security.kerberos.context import Context, KerberosError
from tidelog.security.kerberos.login import GSSAPI
from tidelog.security.principal import Principal
from tidelog.security.sasl.mechanism import Proven, Refused, Step

NO_LAYER = 1
# Without a layer the size of messages, in the other three bytes, is 0.
WITHOUT_LAYERS = bytes([NO_LAYER, 0, 0, 0])


class GssapiMechanism:
    """GSSAPI with the keys of one keytab."""

    name = GSSAPI
    # Tickets are noted in a file, so that none can be used twice.
    is_slow = True

    def __init__(self, accept: Callable[[], Context], rules: AuthToLocal) -> None:
        """``accept`` begins the broker's side of a login."""
        self._accept = accept
        self._rules = rules

    def begin(self) -> GssapiExchange:
        """A new login."""
        return GssapiExchange(self._accept, self._rules)


class _Awaited(enum.Enum):
    TICKET = "ticket"
    NOTHING = "nothing"
    CHOICE = "choice of a layer"
    NO_MORE = "no more"


class GssapiExchange:
    """One login."""

    def __init__(self, accept: Callable[[], Context], rules: AuthToLocal) -> None:
        self._accept = accept
        self._context: Context | None = None
        self._rules = rules
        self._awaited = _Awaited.TICKET

    def step(self, message: bytes) -> Step:
        """The client's next message."""
        awaited, self._awaited = self._awaited, _Awaited.NO_MORE
        try:
            if self._context is None:
                self._context = self._accept()
            if awaited is _Awaited.TICKET:
                return self._take_ticket(self._context, message)
            if awaited is _Awaited.NOTHING:
                return self._take_nothing(self._context, message)
            if awaited is _Awaited.CHOICE:
                return self._take_choice(self._context, message)
        except KerberosError as error:
            raise Refused(f"its {awaited.value} is refused: {error}") from error
        raise Refused("its login is over")

    def _take_ticket(self, context: Context, token: bytes) -> Step:
        if not token:
            raise Refused("it sent no ticket")
        answer = context.step(token)
        if not context.is_complete:
            self._awaited = _Awaited.TICKET
            return Step(answer)
        if not answer:
            return self._offer(context)
        self._awaited = _Awaited.NOTHING
        return Step(answer)

    def _take_nothing(self, context: Context, message: bytes) -> Step:
        if message:
            raise Refused("it sent something where nothing was due")
        return self._offer(context)

    def _offer(self, context: Context) -> Step:
        self._awaited = _Awaited.CHOICE
        return Step(context.wrap(WITHOUT_LAYERS))

    def _take_choice(self, context: Context, message: bytes) -> Step:
        choice = context.unwrap(message)
        if len(choice) < len(WITHOUT_LAYERS) or choice[0] != NO_LAYER:
            raise Refused("it asks for a layer of security that was not offered; use TLS for that")
        try:
            proven = Proven(Principal(self._rules.name_for(context.initiator)))
        except NoRuleAppliesError as error:
            raise Refused(str(error)) from error
        return Step(b"", proven, is_silent=True)
