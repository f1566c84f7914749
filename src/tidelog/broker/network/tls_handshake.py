"""Handshakes: from an accepted socket to a client whose name is known, before there is a connection.

Bounds. A client has a few seconds. Nothing is spent on one that has sent nothing: OpenSSL is asked when the
first byte is there, and if that does not begin a handshake (a client without TLS) it is turned away at once.
A bounded number is under way at once, each some tens of kilobytes; others wait in line, one line for each
address, of which the first of every line comes in turn; and while one waits, a handshake that has stood still
for half a second makes room, one of the address that has most of them. A client from an address that has none
under way does not wait: the address that has most of them, if it has several, makes room at once. So a crowd
keeps no client out that comes from another address, and does not slow it down. The computing, of which there
is most when a client comes, shares the time of a turn with everybody who wants much (``loop_turn``), one step
in a turn, and so does letting others begin.

All that is under way is counted as connections are (``connection_quotas``). Failures are counted, and logged
with the client's address and the reason, a few lines a second at most. Used by ``network``.

Whose certificate was refused OpenSSL does not tell. To listen to the messages of a handshake does, and costs
something for as long as the connection lives: it is done for addresses of which one was refused a while ago,
as clients that are refused come again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import NamedTuple, Protocol

from tidelog.broker.network.loop_turn import LoopTurn
from tidelog.broker.network.rate_limited_log import RateLimitedLog
from tidelog.broker.network.tls_socket import TlsSocket
from tidelog.security.principal import ANONYMOUS, Principal
from tidelog.security.session import Session
from tidelog.security.tls.certificate import read_certificate, shown_subject
from tidelog.security.tls.context import TlsContext, refuses_cipher
from tidelog.security.tls.one_record import come_back_after_each_record
from tidelog.security.tls.principal_mapping import NoRuleAppliesError, PrincipalMapping

LIMIT_S = 10.0
_MAX_UNDER_WAY = 512
# How long a handshake may stand still while others wait to begin theirs.
_PATIENCE_S = 0.5
_HANDSHAKE_RECORD = 0x16
_CERTIFICATE_MESSAGE = 11
_MAX_UNNAMED = 256
_MAX_FAREWELLS = 512
_LINGER_S = 0.5
_UNREAD_BYTES = 64 * 1024


class TlsListener(Protocol):
    """What a handshake needs to know of the listener that it came to."""

    security_protocol: str
    mapping: PrincipalMapping
    current: TlsContext
    """For handshakes that begin now; another may take its place at any time."""


class Newcomer(NamedTuple):
    """An accepted socket."""

    sock: socket.socket
    peer: tuple[str, int]
    listener: str


class HandshakeOwner(Protocol):
    """What handshakes need from the network they belong to."""

    loop: asyncio.AbstractEventLoop
    logger: logging.Logger
    rate_limited_log: RateLimitedLog
    turn: LoopTurn

    def greeted(self, newcomer: Newcomer, sock: TlsSocket, session: Session) -> None:
        """A handshake has succeeded."""

    def turned_away(self, newcomer: Newcomer) -> None:
        """A handshake has failed, and its socket is closed."""


class TlsHandshakes:
    """All handshakes of a network."""

    def __init__(
        self, owner: HandshakeOwner, limit_s: float = LIMIT_S, max_under_way: int = _MAX_UNDER_WAY
    ) -> None:
        self.failures = 0
        """How many were refused or given up, for a metric."""
        self.successes = 0
        self._owner = owner
        self._limit_s = limit_s
        self._max_under_way = max_under_way
        # Those that have sent nothing; those that wait, the first to come first; and those that OpenSSL works
        # on, the one that has stood still longest first.
        self._silent: dict[_Handshake, None] = {}
        self._waiting = _Line()
        self._under_way = _Line()
        # Those under way that could go a step further, were there time in this turn.
        self._ready = _Line()
        self._goes_on_later = False
        self._making_room: asyncio.TimerHandle | None = None
        self._is_letting_in = False
        self._lets_in_later = False
        # The addresses from which a certificate was refused without a word of whose it was, oldest first.
        self._unnamed: OrderedDict[str, None] = OrderedDict()
        self._lingering: dict[_LingeringClose, None] = {}
        self._said = False

    def __len__(self) -> int:
        return len(self._silent) + len(self._waiting) + len(self._under_way) + len(self._lingering)

    def begin(self, newcomer: Newcomer, listener: TlsListener) -> None:
        """Shake hands with a client that the quotas have admitted."""
        handshake = _Handshake(self, self._owner, newcomer, listener, self._limit_s)
        self._silent[handshake] = None

    def close(self) -> None:
        """Give all of them up."""
        for handshake in (*self._silent, *self._waiting, *self._under_way):
            handshake.give_up(None)
        for lingering in tuple(self._lingering):
            lingering.end()

    def spoke(self, handshake: _Handshake) -> None:
        """The first bytes of a handshake are there: it begins, or waits for its turn to."""
        self._silent.pop(handshake, None)
        if len(self._under_way) < self._max_under_way or self._made_room_at_once(handshake.ip):
            self._under_way.add(handshake)
            handshake.start()
            return
        self._waiting.add(handshake)
        self._let_in()

    def moved(self, handshake: _Handshake) -> None:
        """A handshake has gone a step further."""
        self._under_way.to_the_end(handshake)

    def may_step(self, handshake: _Handshake) -> bool:
        """Whether a handshake may go a step further now; otherwise it is told when its turn has come."""
        turn = self._owner.turn
        if not turn.is_spent and not self._ready:
            return True
        self._ready.add(handshake)
        if not self._goes_on_later:
            self._goes_on_later = True
            turn.put_off(self._go_on)
        return False

    def _go_on(self) -> None:
        """Let those whose turn it is go a step further, for as long as there is time."""
        self._goes_on_later = False
        turn = self._owner.turn
        while self._ready and not turn.is_spent:
            self._ready.pop().step_now()
        if self._ready:
            self._goes_on_later = True
            turn.put_off(self._go_on)

    def ended(self, handshake: _Handshake, *, succeeded: bool) -> None:
        """A handshake is over: another may begin."""
        self._silent.pop(handshake, None)
        self._waiting.discard(handshake)
        self._under_way.discard(handshake)
        self._ready.discard(handshake)
        if succeeded:
            self.successes += 1
        else:
            self.failures += 1
        self._let_in()

    def part(self, newcomer: Newcomer, sock: ssl.SSLSocket | socket.socket) -> None:
        """Close the socket of a handshake that has failed, when its client has heard why if that can be."""
        if not isinstance(sock, ssl.SSLSocket) or len(self._lingering) >= _MAX_FAREWELLS:
            sock.close()
            self._owner.turned_away(newcomer)
            return
        lingering = _LingeringClose(self, self._owner, newcomer, sock)
        self._lingering[lingering] = None
        lingering.begin()

    def parted(self, lingering: _LingeringClose) -> None:
        """It is over."""
        del self._lingering[lingering]

    def cannot_come_back(self) -> None:
        """OpenSSL could not be told to come back after each record."""
        if not self._said:
            self._said = True
            self._owner.logger.warning(
                "This Python's OpenSSL cannot be kept from handling requests for new keys or renegotiations "
                "without end: where clients are not to be trusted, use a Python that is linked with the "
                "system's OpenSSL"
            )

    def listens_to(self, ip: str) -> bool:
        """Whether to listen to what somebody from this address shows."""
        return ip in self._unnamed

    def refused_certificate(self, ip: str, *, named: bool) -> None:
        """A certificate was refused; ``named`` if it is known whose."""
        if named:
            self._unnamed.pop(ip, None)
            return
        self._unnamed[ip] = None
        while len(self._unnamed) > _MAX_UNNAMED:
            self._unnamed.popitem(last=False)

    def _let_in(self) -> None:
        """Let those who wait begin, as far as there is room and this turn has time for it."""
        if self._is_letting_in:
            # One that has failed as it began: whoever let it in goes on with the next.
            return
        self._is_letting_in = True
        turn = self._owner.turn
        try:
            while self._waiting:
                if turn.is_spent:
                    if not self._lets_in_later:
                        self._lets_in_later = True
                        turn.put_off(self._let_in_now)
                    return
                if len(self._under_way) >= self._max_under_way and not self._made_room():
                    return
                following = self._waiting.pop()
                self._under_way.add(following)
                following.start()
        finally:
            self._is_letting_in = False

    def _made_room(self) -> bool:
        """End the one who has stood still longest of those from the address that has most, if that is too
        long; otherwise look again when it is."""
        if self._making_room is not None:
            return False
        now_s = monotonic()
        slowest = self._under_way.first_of_the_most()
        patience_s = slowest.moved_s + _PATIENCE_S - now_s
        if patience_s > 0:
            self._making_room = self._owner.loop.call_later(patience_s, self._make_room_now)
            return False
        slowest.give_up("it stands still, and others wait")
        self._owner.turn.spend_since(now_s)
        return True

    def _made_room_at_once(self, ip: str) -> bool:
        """Whether a crowd has made room for the first client of another address."""
        if self._under_way.count_of(ip):
            return False
        slowest = self._under_way.first_of_the_most()
        if self._under_way.count_of(slowest.ip) == 1:
            return False
        began_s = monotonic()
        # The place is not for those in line.
        was_letting_in, self._is_letting_in = self._is_letting_in, True
        try:
            slowest.give_up("its address has most of them, and one from another address waits")
        finally:
            self._is_letting_in = was_letting_in
        self._owner.turn.spend_since(began_s)
        return True

    def _make_room_now(self) -> None:
        self._making_room = None
        self._let_in()

    def _let_in_now(self) -> None:
        self._lets_in_later = False
        self._let_in()


class _Line:
    """Those who wait for something, a line for each address."""

    def __init__(self) -> None:
        self._by_ip: OrderedDict[str, OrderedDict[_Handshake, None]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_Handshake]:
        for line in self._by_ip.values():
            yield from line

    def count_of(self, ip: str) -> int:
        """How many there are from an address."""
        return len(self._by_ip.get(ip, ()))

    def add(self, handshake: _Handshake) -> None:
        """Stand at the end of the line."""
        self._by_ip.setdefault(handshake.ip, OrderedDict())[handshake] = None
        self._count += 1

    def discard(self, handshake: _Handshake) -> None:
        """Leave it."""
        line = self._by_ip.get(handshake.ip)
        if line is not None and handshake in line:
            del line[handshake]
            self._count -= 1
            if not line:
                del self._by_ip[handshake.ip]

    def to_the_end(self, handshake: _Handshake) -> None:
        """Stand at the end again, if it stands here."""
        line = self._by_ip.get(handshake.ip)
        if line is not None and handshake in line:
            line.move_to_end(handshake)

    def first_of_the_most(self) -> _Handshake:
        """The first of the longest line."""
        longest = max(self._by_ip, key=lambda ip: len(self._by_ip[ip]))
        return next(iter(self._by_ip[longest]))

    def pop(self) -> _Handshake:
        """The first of the line whose turn it is."""
        ip, line = next(iter(self._by_ip.items()))
        handshake, _ = line.popitem(last=False)
        self._count -= 1
        if line:
            self._by_ip.move_to_end(ip)
        else:
            del self._by_ip[ip]
        return handshake


class _Handshake:
    """One client that has been accepted."""

    def __init__(
        self,
        all_of_them: TlsHandshakes,
        owner: HandshakeOwner,
        newcomer: Newcomer,
        listener: TlsListener,
        limit_s: float,
    ) -> None:
        self.moved_s = monotonic()
        self.ip = newcomer.peer[0]
        self._all = all_of_them
        self._owner = owner
        self._newcomer = newcomer
        self._listener = listener
        self._tls: ssl.SSLSocket | None = None
        self._context: TlsContext = listener.current
        self._fd = newcomer.sock.fileno()
        self._over = False
        self._stop_listening: Callable[[], object] | None = None
        self._limit_s = limit_s
        self._shown: str | None = None
        self._listens = False
        self._timer = owner.loop.call_later(limit_s, self._too_late)
        self._wait_for(owner.loop.add_reader, owner.loop.remove_reader, self._first_bytes)

    def start(self) -> None:
        """Have OpenSSL begin."""
        self._context = self._listener.current
        self.moved_s = monotonic()
        self._listens = self._all.listens_to(self.ip)
        try:
            with self._listening():
                self._tls = self._context.context.wrap_socket(
                    self._newcomer.sock, server_side=True, do_handshake_on_connect=False
                )
            self._owner.turn.spend_since(self.moved_s)
        except (OSError, ValueError) as error:
            self.give_up(_reason(error))
            return
        self._step()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Hear the messages of this handshake, and of no other one of the same context."""
        if not self._listens:
            yield
            return
        context = self._context.context
        context._msg_callback = self._heard  # type: ignore[attr-defined]
        try:
            yield
        finally:
            context._msg_callback = None  # type: ignore[attr-defined]

    def _heard(
        self, _: ssl.SSLSocket, direction: str, version: int, content: int, message: int, data: bytes
    ) -> None:
        if direction == "read" and content == _HANDSHAKE_RECORD and message == _CERTIFICATE_MESSAGE:
            self._shown = shown_subject(data, is_tls_1_3=version == ssl.TLSVersion.TLSv1_3)

    def give_up(self, reason: str | None) -> None:
        """Close the socket; ``None`` if that is nobody's business."""
        if self._over:
            return
        self._end()
        if reason is not None:
            peer = f"{self._newcomer.peer[0]}:{self._newcomer.peer[1]} ({self._newcomer.listener})"
            self._owner.rate_limited_log.warn("handshake", "No TLS with %s: %s", peer, reason)
        if self._tls is None:
            with suppress(OSError):
                # A socket that is closed on unread bytes is reset, and the client knows even less.
                self._newcomer.sock.recv(_UNREAD_BYTES)
        self._all.ended(self, succeeded=False)
        self._all.part(self._newcomer, self._tls or self._newcomer.sock)

    def _end(self) -> None:
        self._over = True
        self._timer.cancel()
        self._listen_no_more()

    def _too_late(self) -> None:
        if self._tls is None and self._stop_listening is not None:
            self.give_up(f"it has sent nothing for {self._limit_s:.3g} s")
        else:
            self.give_up(f"the handshake has taken longer than {self._limit_s:.3g} s")

    def _wait_for(
        self,
        listen: Callable[[int, Callable[[], None]], object],
        stop: Callable[[int], object],
        callback: Callable[[], None],
    ) -> None:
        listen(self._fd, callback)
        self._stop_listening = lambda: stop(self._fd)

    def _listen_no_more(self) -> None:
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None

    def _first_bytes(self) -> None:
        try:
            first = self._newcomer.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        self._listen_no_more()
        if not first:
            # Somebody has looked whether the port is open.
            self.give_up(None)
        elif first[0] != _HANDSHAKE_RECORD:
            self.give_up(
                "what it sends is not TLS; it looks like a plaintext Kafka client, which has to set "
                f"security.protocol={self._listener.security_protocol}"
            )
        else:
            self._all.spoke(self)

    def _step(self) -> None:
        if self._over:
            return
        self._listen_no_more()
        if self._all.may_step(self):
            self.step_now()

    def step_now(self) -> None:
        """Have OpenSSL go on."""
        turn = self._owner.turn
        tls, loop = self._tls, self._owner.loop
        assert tls is not None
        began_s = monotonic()
        try:
            with self._listening():
                tls.do_handshake()
        except ssl.SSLWantReadError:
            self._wait_for(loop.add_reader, loop.remove_reader, self._step)
        except ssl.SSLWantWriteError:
            self._wait_for(loop.add_writer, loop.remove_writer, self._step)
        except ssl.SSLCertVerificationError as error:
            self._all.refused_certificate(self.ip, named=self._shown is not None)
            whose = "" if self._shown is None else f" (it says that it is {self._shown})"
            self.give_up(f"its certificate is refused: {error.verify_message}{whose}")
        except (OSError, ValueError) as error:
            self.give_up(_reason(error))
        else:
            self._shaken(tls)
        turn.spend_since(began_s)
        if not self._over:
            self.moved_s = monotonic()
            self._all.moved(self)

    def _shaken(self, tls: ssl.SSLSocket) -> None:
        cipher = tls.cipher()
        if cipher is not None and refuses_cipher(self._context.settings, cipher[0]):
            self.give_up(f"it uses {cipher[0]}, which ssl.cipher.suites does not name")
            return
        try:
            principal = self._principal(tls)
        except (NoRuleAppliesError, ValueError) as error:
            self.give_up(str(error))
            return
        if not come_back_after_each_record(tls):
            self._all.cannot_come_back()
        self._end()
        session = Session(
            self._newcomer.peer[0], principal=principal, security_protocol=self._listener.security_protocol
        )
        self._all.ended(self, succeeded=True)
        self._owner.greeted(self._newcomer, TlsSocket(tls, self._owner.loop), session)

    def _principal(self, tls: ssl.SSLSocket) -> Principal:
        encoded = tls.getpeercert(binary_form=True)
        if encoded is None:
            return ANONYMOUS
        certificate = read_certificate(encoded)
        # Who comes with a ticket has not shown it again.
        problem = certificate.validity_problem()
        if problem is not None:
            raise ValueError(problem)
        return Principal(self._listener.mapping.name_for(certificate.subject))


class _LingeringClose:
    """The end of a client that was refused.

    What it has sent behind the handshake (with TLS 1.3 that is its first request) is read and thrown away for
    a moment: the kernel would else reset the connection, and the client lose the alert that says why.
    """

    def __init__(
        self, all_of_them: TlsHandshakes, owner: HandshakeOwner, newcomer: Newcomer, tls: ssl.SSLSocket
    ) -> None:
        self._all = all_of_them
        self._owner = owner
        self._newcomer = newcomer
        self._sock = socket.socket(fileno=tls.detach())
        self._fd = self._sock.fileno()
        self._timer = owner.loop.call_later(_LINGER_S, self.end)

    def begin(self) -> None:
        """Say nothing more, and wait for the client to hang up."""
        try:
            self._sock.setblocking(False)
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.end()
            return
        self._owner.loop.add_reader(self._fd, self._read)
        self._read()

    def end(self) -> None:
        """Close the socket."""
        if self._sock.fileno() < 0:
            return
        self._timer.cancel()
        self._owner.loop.remove_reader(self._fd)
        self._sock.close()
        self._all.parted(self)
        self._owner.turned_away(self._newcomer)

    def _read(self) -> None:
        try:
            if not self._sock.recv(_UNREAD_BYTES):
                self.end()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.end()


def _reason(error: OSError | ValueError) -> str:
    """Why a handshake failed, in words for people."""
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        return _REASONS.get(error.reason, error.reason.lower().replace("_", " "))
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "it has hung up during the handshake; does it trust the broker's certificate?"
    return str(error)


_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and ssl.client.auth=required asks for one",
    "NO_SHARED_CIPHER": "it has none of our ciphers (ssl.cipher.suites, and the kind of key)",
    "UNSUPPORTED_PROTOCOL": "it offers none of the versions in ssl.enabled.protocols",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority of the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it refuses the broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refuses the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that the broker's certificate has expired",
}
