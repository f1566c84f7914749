"""A connection's login: nothing but ApiVersions, SaslHandshake and SaslAuthenticate until a client is known.

    connected ──ApiVersions──▶ versions told ──SaslHandshake──▶ exchange ──tokens──▶ known
        └───────────────SaslHandshake──────────────▶┘

The states are those of Kafka's SaslServerAuthenticator. SaslHandshake 0 is followed by bare tokens, each in a
frame, SaslHandshake 1 by SaslAuthenticate. Whatever else comes is refused: with ILLEGAL_SASL_STATE where its
response has room for an error, and by closing the connection. A login that fails is answered in one sentence
for all reasons. Answer and end come ``connection.failed.authentication.delay.ms`` after the message that was
refused, however long it took to refuse it, so that the time shows nothing either. Only this client waits: a
flood of wrong passwords costs those who send it.

A step that may be slow runs in a thread, and the requests behind it on its connection wait.

Who is known is served by the dispatcher directly. Where the session ends at some time (KIP-368) an
``ExpiringSession`` stands before it: it lets the client log in again, and closes the connection at the first
other request behind the end. Made by ``sasl_listener``.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from tidelog.broker.network.answer import NO_ANSWER, HandlerResult, NoAnswer, PromisedAnswer
from tidelog.broker.network.connection import Connection, RequestHandler
from tidelog.config.sasl_settings import SaslSettings
from tidelog.errors import ErrorCode, WireError
from tidelog.metrics.connection_counts import ConnectionCounts
from tidelog.scheduling.promise import Promise
from tidelog.security.principal import Principal
from tidelog.security.sasl.mechanism import Exchange, Mechanism, Proven, Refused, SlowStep, Step
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import RequestHeader, encode_response, parse_request_header
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

logger = logging.getLogger(__name__)

MAX_RECEIVE = "sasl.server.max.receive.size"
_MIN_BETWEEN_LOGINS_S = 1.0
# Some clients that are told and closed in one go have heard of the end alone.
_TIME_TO_READ_S = 0.1
# A credential that is good for a moment only, by clocks that differ, is good for one request.
_MIN_LIFETIME_MS = 1000


T = TypeVar("T")


class LoginOptions(NamedTuple):
    """The options of a listener that change while it runs."""

    mechanisms: Mapping[str, Mechanism]
    """Those that are offered, by name."""
    failure_delay_s: float
    max_receive_bytes: int
    max_reauth_ms: Mapping[str, int]

    @classmethod
    def of(cls, settings: SaslSettings, mechanisms: Mapping[str, Mechanism]) -> LoginOptions:
        """The options in ``settings``."""
        return cls(
            mechanisms,
            settings.config.int("connection.failed.authentication.delay.ms") / 1000,
            settings.config.int(MAX_RECEIVE),
            {each.name: each.config.int("connections.max.reauth.ms") for each in settings.mechanisms},
        )


class LoginSide(Protocol):
    """What a login needs from the listener that it is on (``sasl_listener``)."""

    loop: asyncio.AbstractEventLoop
    dispatcher: RequestHandler
    options: LoginOptions
    counts: ConnectionCounts

    def in_thread(self, step: Callable[[bytes], T], token: bytes) -> asyncio.Future[T]:
        """Run a slow step where it keeps nobody waiting."""

    def lifetime_ms(self, mechanism: str, proven: Proven) -> float | None:
        """For how long a login is good; ``None`` for ever."""

    def is_known(self, connection: Connection) -> None:
        """A client has logged in, for the first time or again."""

    def refused(self, connection: Connection, why: str) -> None:
        """A client could not log in."""


class _State(enum.Enum):
    CONNECTED = "connected"
    VERSIONS_TOLD = "versions told"
    EXCHANGE = "exchange"
    BARE_EXCHANGE = "bare exchange"
    KNOWN = "known"
    REFUSED = "refused"


class SaslAuthenticator:
    """The ``RequestHandler`` of a connection until its client is known, and while it proves itself again."""

    def __init__(self, listener: LoginSide, known_as: KnownAs | None = None) -> None:
        """``known_as`` is who the client was, if it logs in again."""
        self._listener = listener
        self._known_as = known_as
        self._state = _State.CONNECTED if known_as is None else _State.VERSIONS_TOLD
        self._mechanism: Mechanism | None = None
        self._exchange: Exchange | None = None
        self._asked_s = 0.0
        """When the message came that is being handled."""
        self._next: RequestHandler = listener.dispatcher

    def handle(self, connection: Connection, frame: memoryview) -> HandlerResult:
        """Answer one request of somebody who is not known."""
        state = self._state
        self._asked_s = self._listener.loop.time()
        if state is _State.KNOWN:
            # It came together with the last message of the login.
            return self._next.handle(connection, frame)
        if state is _State.REFUSED:
            return NO_ANSWER
        if state is _State.BARE_EXCHANGE:
            return self._take_token(connection, bytes(frame), _bare_answer, None)
        header, pos = parse_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == ApiKey.API_VERSIONS and state is _State.CONNECTED:
            if API_TABLE[ApiKey.API_VERSIONS].accepts(version):
                self._state = _State.VERSIONS_TOLD
            return self._next.handle(connection, frame)
        if not API_TABLE[ApiKey(key)].accepts(version):
            raise WireError(f"it sent {ApiKey(key).name} version {version}, which is not supported")
        if key == ApiKey.SASL_HANDSHAKE and state in (_State.CONNECTED, _State.VERSIONS_TOLD):
            handshake, _ = decode(SaslHandshakeRequest, version, frame, pos)
            return self._shake_hands(connection, header, handshake.mechanism)
        if key == ApiKey.SASL_AUTHENTICATE and state is _State.EXCHANGE:
            request, _ = decode(SaslAuthenticateRequest, version, frame, pos)
            token = bytes(request.auth_bytes)
            refusal = _answer_to(header, _refusal(self._refusal_text))
            return self._take_token(connection, token, _answer_of(header), refusal)
        return self._refuse(
            connection, _illegal_state(header), f"it sent {ApiKey(key).name} before it had logged in"
        )

    def commit(self) -> None:
        """Nothing is staged by those who log in."""

    def _shake_hands(self, connection: Connection, header: RequestHeader, name: str) -> HandlerResult:
        offered = self._listener.options.mechanisms
        if self._known_as is not None:
            offered = {each: offered[each] for each in offered if each == self._known_as.mechanism}
        mechanism = offered.get(name)
        response = SaslHandshakeResponse(mechanisms=list(offered))
        if mechanism is None:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            answer = encode_response(header.api_key, header.api_version, header.correlation_id, response)
            return self._refuse(connection, answer, "it asked for a mechanism that is not offered here")
        self._mechanism = mechanism
        self._exchange = mechanism.begin()
        self._state = _State.BARE_EXCHANGE if header.api_version == 0 else _State.EXCHANGE
        return encode_response(header.api_key, header.api_version, header.correlation_id, response)

    # The exchange

    def _take_token(
        self,
        connection: Connection,
        token: bytes,
        answer_of: Callable[[Step, int], bytes | NoAnswer],
        refusal: bytes | None,
    ) -> HandlerResult:
        """Let the mechanism have the client's next message; ``refusal`` is what is answered if it fails."""
        assert self._mechanism is not None
        assert self._exchange is not None
        if len(token) > self._listener.options.max_receive_bytes:
            # Only a client that logs in again could send it: of others such a frame is not received.
            return self._refuse(
                connection, refusal, "its message is longer than sasl.server.max.receive.size"
            )
        step = self._exchange.step
        slow: Callable[[bytes], Step] = partial(_whole_step, step)
        if not self._mechanism.is_slow:
            try:
                taken = step(token)
                if isinstance(taken, Step):
                    return self._went_on(connection, taken, answer_of)
            except Exception as error:
                return self._failed(connection, error, refusal)
            slow = partial(_rest_of_step, taken)
        promise: PromisedAnswer = Promise()
        running = self._listener.in_thread(slow, token)
        promise.only_waits(running.cancel)

        def done(finished: asyncio.Future[Step]) -> None:
            if connection.closed or finished.cancelled():
                return
            # Not ``result()``: an exception that is raised here holds this frame, and that the exception.
            failure = finished.exception()
            if failure is not None:
                self._failed(connection, failure, refusal, promise)
                return
            try:
                answer = self._went_on(connection, finished.result(), answer_of)
            except Exception as error:
                self._failed(connection, error, refusal, promise)
            else:
                promise.resolve(answer)

        running.add_done_callback(done)
        return promise

    def _went_on(
        self, connection: Connection, step: Step, answer_of: Callable[[Step, int], bytes | NoAnswer]
    ) -> bytes | NoAnswer:
        lifetime_ms = 0 if step.proven is None else self._is_known(connection, step.proven)
        return answer_of(step, lifetime_ms)

    def _is_known(self, connection: Connection, proven: Proven) -> int:
        """The client has proven who it is; gives for how many milliseconds, 0 for ever."""
        assert self._mechanism is not None
        listener, session = self._listener, connection.session
        if self._known_as is not None and self._known_as.principal != proven.principal:
            raise Refused("it logs in again as somebody else")
        lifetime_ms = listener.lifetime_ms(self._mechanism.name, proven)
        session.principal = proven.principal
        session.mechanism = self._mechanism.name
        session.by_token = proven.by_token
        session.expires_at_s = None if lifetime_ms is None else listener.loop.time() + lifetime_ms / 1000
        session.decisions.clear()
        self._state = _State.KNOWN
        self._exchange = None
        if session.expires_at_s is not None:
            began_s = None if self._known_as is None else self._known_as.began_s
            self._next = ExpiringSession(listener, session.expires_at_s, began_s)
        connection.serve_by(self._next)
        listener.is_known(connection)
        if self._known_as is not None:
            now_s = listener.loop.time()
            listener.counts.reauthentication.add((now_s - self._known_as.began_s) * 1000, now_s)
        return 0 if lifetime_ms is None else int(lifetime_ms)

    # Refusals

    @property
    def _refusal_text(self) -> str:
        name = "" if self._mechanism is None else self._mechanism.name
        again = "re-authentication" if self._known_as is not None else "authentication"
        return f"Authentication failed during {again} due to invalid credentials with SASL mechanism {name}"

    def _failed(
        self,
        connection: Connection,
        error: BaseException,
        refusal: bytes | None,
        promise: PromisedAnswer | None = None,
    ) -> PromisedAnswer:
        if not isinstance(error, Refused):
            logger.error("Unexpected error in the login of %s", connection, exc_info=error)
        why = str(error) if isinstance(error, Refused) else "its login could not be handled"
        return self._refuse(connection, refusal, f"{self._refusal_text}: {why}", promise)

    def _refuse(
        self, connection: Connection, answer: bytes | None, why: str, promise: PromisedAnswer | None = None
    ) -> PromisedAnswer:
        """Answer, and close the connection, after a while."""
        self._state = _State.REFUSED
        self._exchange = None
        promise = promise or Promise()
        promise.only_waits()
        self._listener.refused(connection, why)

        def end() -> None:
            if connection.closed:
                return
            if answer is None:
                connection.close()
                return
            promise.resolve(answer)
            loop.call_later(_TIME_TO_READ_S, connection.close)

        loop = self._listener.loop
        loop.call_at(max(self._asked_s + self._listener.options.failure_delay_s, loop.time()), end)
        return promise


class KnownAs:
    """Who a client was before it began to log in again."""

    __slots__ = ("began_s", "mechanism", "principal")

    def __init__(self, principal: Principal, mechanism: str | None, began_s: float) -> None:
        self.principal = principal
        self.mechanism = mechanism
        self.began_s = began_s
        """When it began to."""


class ExpiringSession:
    """The ``RequestHandler`` of a connection whose client has to log in again before its session ends."""

    def __init__(self, listener: LoginSide, expires_at_s: float, began_s: float | None) -> None:
        """``began_s`` is when the client last began to log in again."""
        self._listener = listener
        self._expires_at_s = expires_at_s
        self._began_s = began_s
        self._dispatcher = listener.dispatcher
        self._again: SaslAuthenticator | None = None

    def handle(self, connection: Connection, frame: memoryview) -> HandlerResult:
        """Answer one request."""
        if self._again is not None:
            return self._again.handle(connection, frame)
        now_s = self._listener.loop.time()
        if frame[:2] == _SASL_HANDSHAKE:
            if self._began_s is not None and now_s - self._began_s < _MIN_BETWEEN_LOGINS_S:
                # Too often: as where nobody logs in again.
                return self._dispatcher.handle(connection, frame)
            session = connection.session
            known_as = KnownAs(session.principal, session.mechanism, now_s)
            self._again = SaslAuthenticator(self._listener, known_as)
            connection.serve_by(self._again)
            return self._again.handle(connection, frame)
        if now_s > self._expires_at_s:
            self._listener.counts.expired += 1
            raise WireError("its session has ended, and it has not logged in again")
        return self._dispatcher.handle(connection, frame)

    def commit(self) -> None:
        """What is staged is the dispatcher's to write, which the network asks for it."""


_SASL_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")


def session_lifetime_ms(max_reauth_ms: int, expires_at_ms: float | None, now_ms: float) -> float | None:
    """For how long a login is good: the least of what the option and the credential say, if any does."""
    limits = [float(max_reauth_ms)] if max_reauth_ms > 0 else []
    if expires_at_ms is not None:
        limits.append(max(expires_at_ms - now_ms, _MIN_LIFETIME_MS))
    return min(limits, default=None)


def _whole_step(step: Callable[[bytes], Step | SlowStep], token: bytes) -> Step:
    taken = step(token)
    return taken if isinstance(taken, Step) else taken.finish()


def _rest_of_step(begun: SlowStep, _: bytes) -> Step:
    return begun.finish()


def _refusal(text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)


def _answer_to(header: RequestHeader, response: SaslAuthenticateResponse) -> bytes:
    return encode_response(header.api_key, header.api_version, header.correlation_id, response)


def _answer_of(header: RequestHeader) -> Callable[[Step, int], bytes]:
    def answer(step: Step, lifetime_ms: int) -> bytes:
        return _answer_to(
            header,
            SaslAuthenticateResponse(
                error_message=None, auth_bytes=step.answer, session_lifetime_ms=lifetime_ms
            ),
        )

    return answer


def _bare_answer(step: Step, _: int) -> bytes | NoAnswer:
    return NO_ANSWER if step.is_silent else len(step.answer).to_bytes(4, "big") + step.answer


def _illegal_state(header: RequestHeader) -> bytes | None:
    """The refusal of a request that comes too early; ``None`` if its response has no room for one."""
    key, version, correlation_id, _ = header
    response = API_TABLE[ApiKey(key)].response
    if not any(each.name == "error_code" and each.present_in(version) for each in response.FIELDS):
        return None
    return encode_response(key, version, correlation_id, response(error_code=ErrorCode.ILLEGAL_SASL_STATE))
