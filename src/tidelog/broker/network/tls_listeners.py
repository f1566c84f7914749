"""The keys and certificates of a broker's listeners: read at start, watched, changed while it runs.

Each listener with TLS has one context that new handshakes use (``ListenerTls.current``). Another takes its
    place when the files behind it change: they are looked at every few seconds, through symbolic links, which
        is how Kubernetes swaps them;
    when an administrator alters the options of this listener, the same path included, which is Kafka's way.
A new one is read beside the loop, in a thread, and must keep the rules of ``security/tls/rotation``. One that
does not leaves everything as it was: with one log line, or with the refusal of the request. Connections that
are there go on with what they began with.

Made by ``broker/app``; ``broker/network`` reads ``current``, ``metadata/dynamic_config`` asks before options
change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.config.options.listener_options import ListenerConfig
from tidelog.errors import ConfigError
from tidelog.security.tls import kernel_tls
from tidelog.security.tls.context import ClientAuth, TlsContext, server_context
from tidelog.security.tls.principal_mapping import PrincipalMapping
from tidelog.security.tls.rotation import FileState, RotationRules, check_rotation, file_state
from tidelog.security.tls.settings import TlsSettings, read_settings

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 3.0
_SOON_TO_EXPIRE_S = 14 * 24 * 3600.0
_TLS_PROTOCOLS = ("SSL", "SASL_SSL")


@dataclass(slots=True)
class ListenerTls:
    """What TLS is on one listener."""

    name: str
    security_protocol: str
    client_auth: ClientAuth
    mapping: PrincipalMapping
    rules: RotationRules
    current: TlsContext
    """For handshakes that begin now."""
    files: FileState
    """What the stores' files were when ``current`` was read."""
    refused: tuple[FileState, TlsSettings] | None = None
    """What was last found to be unusable: it is not tried, and told of, again and again."""
    reloads: int = 0
    reload_failures: int = 0
    expires_at_s: float = field(init=False, default=0.0)
    """When the first certificate of the broker's own chain expires, in seconds since 1970: for a metric."""
    trust_expires_at_s: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.take(self.current, self.files)

    def take(self, new: TlsContext, files: FileState) -> None:
        """Use another context from now on."""
        self.current = new
        self.files = files
        self.refused = None
        assert new.key is not None
        self.expires_at_s = min(each.not_after.timestamp() for each in new.key.chain)
        trusted = () if new.trust is None else new.trust.certificates
        self.trust_expires_at_s = min((each.not_after.timestamp() for each in trusted), default=None)


class TlsListeners:
    """All listeners of a broker that speak TLS, by their names."""

    def __init__(self, config: BrokerConfig, listeners: Iterable[Listener]) -> None:
        """Read all stores; raises ``ConfigError`` if one cannot be used."""
        self._config = config
        secure = [each for each in listeners if each.security_protocol in _TLS_PROTOCOLS]
        self.kernel_tls = bool(secure) and kernel_tls.is_offered()
        """Whether the kernel could encrypt what is sent."""
        self.by_name = {each.name: self._open(each) for each in secure}
        self._watching: asyncio.Task[None] | None = None
        self._look_now = asyncio.Event()

    def _open(self, listener: Listener) -> ListenerTls:
        options = self._config.for_listener(listener.name)
        settings = read_settings(options, options.name_of)
        client_auth = _client_auth(options, listener)
        files = file_state(settings)
        opened = ListenerTls(
            listener.name,
            listener.security_protocol,
            client_auth,
            PrincipalMapping(
                options.str("ssl.principal.mapping.rules"), options.name_of("ssl.principal.mapping.rules")
            ),
            RotationRules(
                self._config.bool("ssl.allow.dn.changes"), self._config.bool("ssl.allow.san.changes")
            ),
            server_context(settings, client_auth, kernel_tls=self.kernel_tls),
            files,
        )
        _tell_of_expiry(opened)
        return opened

    # -- watching ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Watch the files from now on, and say once who encrypts."""
        if not self.by_name:
            return
        logger.info(
            "TLS on %s: %s",
            ", ".join(self.by_name),
            "the kernel encrypts, where it has the cipher (kTLS)"
            if self.kernel_tls
            else "OpenSSL encrypts, as this kernel does not (no kTLS)",
        )
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def close(self) -> None:
        """Watch no more."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
            self._watching = None

    def look_again(self) -> None:
        """Options may have changed: look at them, and at the files, without waiting."""
        self._look_now.set()

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._look_now.wait()
            self._look_now.clear()
            for listener in self.by_name.values():
                try:
                    await self._look_at(listener)
                except Exception:
                    logger.exception("The certificates of %s could not be looked at", listener.name)

    async def _look_at(self, listener: ListenerTls) -> None:
        options = self._config.for_listener(listener.name)
        try:
            settings = read_settings(options, options.name_of)
            files = await asyncio.to_thread(file_state, settings)
            if files == listener.files and settings == listener.current.settings:
                return
            if (files, settings) == listener.refused:
                return
            listener.refused = (files, settings)
            new = await asyncio.to_thread(self._make, listener, settings)
        except ConfigError as error:
            listener.reload_failures += 1
            logger.error("%s goes on with the certificate that it has: %s", listener.name, error)
            return
        self._use(listener, new, files)

    # -- changes of options -----------------------------------------------------------------------------

    async def prepare(self, options_of: Callable[[str], ListenerConfig]) -> Callable[[], None]:
        """Read the stores that options, as they would be, name; the function that puts them to use.

        Raises ``ConfigError`` if one cannot be used: then nothing changes.
        """
        prepared: list[tuple[ListenerTls, TlsContext, FileState]] = []
        for listener in self.by_name.values():
            options = options_of(listener.name)
            settings = read_settings(options, options.name_of)
            files = await asyncio.to_thread(file_state, settings)
            if files == listener.files and settings == listener.current.settings:
                continue
            try:
                new = await asyncio.to_thread(self._make, listener, settings)
            except ConfigError:
                listener.reload_failures += 1
                raise
            prepared.append((listener, new, files))

        def use() -> None:
            for each in prepared:
                self._use(*each)

        return use

    def _make(self, listener: ListenerTls, settings: TlsSettings) -> TlsContext:
        new = server_context(settings, listener.client_auth, kernel_tls=self.kernel_tls)
        check_rotation(listener.current, new, listener.rules)
        return new

    def _use(self, listener: ListenerTls, new: TlsContext, files: FileState) -> None:
        listener.take(new, files)
        listener.reloads += 1
        assert new.key is not None
        logger.info(
            "New handshakes on %s use the certificate of %s that expires on %s UTC",
            listener.name,
            new.key.certificate.subject,
            f"{new.key.certificate.not_after:%Y-%m-%d %H:%M}",
        )
        _tell_of_expiry(listener)


def _client_auth(options: ListenerConfig, listener: Listener) -> ClientAuth:
    value = options.str("ssl.client.auth")
    if value not in ("requested", "required"):
        return "none"
    if listener.security_protocol == "SASL_SSL" and not options.is_own("ssl.client.auth"):
        # Kafka's rule: who logs in by SASL is not asked for a certificate by an option meant for others.
        logger.warning(
            "ssl.client.auth=%s does not hold for %s, which speaks SASL_SSL: set "
            "listener.name.%s.ssl.client.auth where it is to",
            value,
            listener.name,
            listener.name.lower(),
        )
        return "none"
    return "required" if value == "required" else "requested"


def _tell_of_expiry(listener: ListenerTls) -> None:
    left_s = listener.expires_at_s - time.time()
    if left_s < _SOON_TO_EXPIRE_S:
        logger.warning(
            "The certificate of %s %s; put a new one in its place, which is used without a restart",
            listener.name,
            "has expired" if left_s < 0 else f"expires in {left_s / 86400:.1f} days",
        )
