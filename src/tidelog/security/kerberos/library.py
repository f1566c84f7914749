"""MIT's Kerberos library by way of the package ``gssapi``, which is an extra of this one.

Where it is missing, whoever needs it gets a ``ConfigError`` that says what to install. All calls may read
files, and those of a client may ask a KDC over the network: they belong into a thread.

A keytab is read anew for each ticket that a broker accepts, so that a new one takes effect at once. Tickets
that a client fetches by a keytab are kept in memory, once for each principal and keytab of the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.errors import ConfigError
from tidelog.security.kerberos.context import Context, KerberosError
from tidelog.security.kerberos.login import ANY_PRINCIPAL, KerberosLogin

if TYPE_CHECKING:
    from types import ModuleType

EXTRA = "pip install 'tidelog[gssapi]'"

_NO_TICKET = "there is no ticket: run kinit, or set keyTab and principal in sasl.jaas.config"
_OLD_KEYTAB = "the keytab does not have the key that the ticket is for: fetch the keytab anew (ktadd)"
# The numbers of RFC 4120, from which MIT counts on for its own.
_FIRST = -1765328384
_NO_TICKET_NUMBERS = (141, 195)
_REMEDIES = {
    6: "the KDC does not know this principal: see `principal`",
    7: "the KDC knows no such service: sasl.kerberos.service.name and the broker's host in bootstrap.servers "
    "or advertised.listeners have to be its principal",
    24: "the keytab does not have the present key of the principal: fetch it anew (ktadd)",
    31: _OLD_KEYTAB,
    32: "the ticket has ended: get a new one (kinit)",
    33: "the ticket is not good yet: compare the clocks of client, broker and KDC",
    37: "the clocks of client, broker and KDC differ by more than `clockskew` of krb5.conf: set them by NTP",
    44: _OLD_KEYTAB,
    45: _OLD_KEYTAB,
    _NO_TICKET_NUMBERS[0]: _NO_TICKET,
    156: "no KDC answers: see the realm's `kdc` in krb5.conf",
    _NO_TICKET_NUMBERS[1]: _NO_TICKET,
}

# GSS_S_CREDENTIALS_EXPIRED, GSS_S_CONTEXT_EXPIRED
_MAJOR_REMEDIES = {11 << 16: _REMEDIES[32], 12 << 16: _REMEDIES[32]}


def load() -> ModuleType:
    """The package; raises ``ConfigError`` where it is missing."""
    try:
        import gssapi
    except ImportError as error:
        raise ConfigError(
            f"GSSAPI (Kerberos) needs the package gssapi, which cannot be loaded here ({error}): {EXTRA} "
            "installs it, and needs Kerberos' library and headers for that (libkrb5-dev or krb5-devel)"
        ) from error
    package: ModuleType = gssapi
    return package


def default_realm() -> str:
    """The realm of ``krb5.conf``; empty if there is none."""
    gssapi = load()
    try:
        name = gssapi.Name("nobody", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)
        return bytes(name).decode().partition("@")[2]
    except (gssapi.exceptions.GSSError, UnicodeDecodeError):
        return ""


class Acceptor:
    """What a broker accepts tickets by."""

    def __init__(self, login: KerberosLogin, option: str) -> None:
        """Raises ``ConfigError`` if the keytab of ``option`` cannot be used."""
        gssapi = load()
        assert login.keytab is not None
        check_readable(login.keytab, option)
        name = None
        try:
            if login.principal not in (None, ANY_PRINCIPAL):
                name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
            self._credentials = gssapi.Credentials(
                name=name,
                usage="accept",
                mechs=[gssapi.MechType.kerberos],
                store={"keytab": f"FILE:{login.keytab}"},
            )
        except (gssapi.exceptions.GSSError, NotImplementedError) as error:
            raise ConfigError(
                f"{option} has a keytab that cannot be used for {login.principal}: {_reason(error)}; "
                f"klist -k {login.keytab} lists what is in it"
            ) from error

    def begin(self) -> Context:
        """The broker's side of one login."""
        return _LibraryContext(load().SecurityContext(creds=self._credentials, usage="accept"))


def initiate(login: KerberosLogin, option: str, service: str, host: str) -> Context:
    """A client's side of one login at ``service`` on ``host``, in which both sides prove who they are.

    Raises :class:`KerberosError`, or ``ConfigError`` for a keytab of ``option`` that is not there.
    """
    gssapi = load()
    kerberos = gssapi.MechType.kerberos
    flags = gssapi.RequirementFlag
    store: dict[str, str] = {}
    if login.keytab is not None:
        check_readable(login.keytab, option)
        store = {"client_keytab": f"FILE:{login.keytab}", "ccache": _memory_cache(login)}
    elif login.ticket_cache is not None:
        store = {"ccache": login.ticket_cache}
    try:
        name = None
        if login.principal is not None:
            name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
        return _LibraryContext(
            gssapi.SecurityContext(
                name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
                creds=gssapi.Credentials(name=name, usage="initiate", mechs=[kerberos], store=store or None),
                usage="initiate",
                mech=kerberos,
                flags=flags.mutual_authentication | flags.integrity,
            )
        )
    except (gssapi.exceptions.GSSError, NotImplementedError) as error:
        if login.keytab is not None and _number(error) in _NO_TICKET_NUMBERS:
            # The library has looked into the keytab, and then for a cache, of which alone it speaks.
            raise KerberosError(
                f"the keytab has no key of {login.principal}; klist -k {login.keytab} lists what is in it"
            ) from error
        raise KerberosError(_reason(error)) from error


class _LibraryContext:
    """A context of the package, whose errors may come with the call behind the one that has failed."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.is_complete = False

    @property
    def initiator(self) -> str:
        with _told():
            try:
                return bytes(self._context.initiator_name).decode()
            except UnicodeDecodeError:
                raise KerberosError("the principal is not UTF-8") from None

    def step(self, token: bytes | None) -> bytes:
        with _told():
            answer: bytes | None = self._context.step(token)
            self.is_complete = bool(self._context.complete)
            if self.is_complete and self._context.mech != load().MechType.kerberos:
                raise KerberosError("it is another mechanism than Kerberos")
        return answer or b""

    def wrap(self, message: bytes) -> bytes:
        with _told():
            return bytes(self._context.wrap(message, False).message)

    def unwrap(self, message: bytes) -> bytes:
        with _told():
            return bytes(self._context.unwrap(message).message)


@contextmanager
def _told() -> Iterator[None]:
    """Errors of the package become ours."""
    try:
        yield
    except load().exceptions.GSSError as error:
        raise KerberosError(_reason(error)) from error


def _reason(error: Any) -> str:
    """What an error of the library means, in its own words and with a remedy where one is known."""
    if isinstance(error, NotImplementedError):
        return "this Kerberos library cannot be told which keytab to use; MIT's, 1.11 or newer, can"
    text = _words(error)
    remedy = _REMEDIES.get(_number(error)) or _MAJOR_REMEDIES.get(error.maj_code)
    return f"{text} ({remedy})" if remedy else text


def _number(error: Any) -> int:
    """The mechanism's own error, counted from the first of RFC 4120."""
    return (getattr(error, "min_code", 0) - _FIRST) & 0xFFFFFFFF


def _words(error: Any) -> str:
    """The mechanism's message, or that of GSSAPI where there is none."""
    for code, is_major in ((error.min_code, False), (error.maj_code, True)):
        message = " ".join(error.get_all_statuses(code, is_major)).strip()
        if message and message not in ("Success", "Unknown error"):
            return message
    return "it is not a message of Kerberos"


def _memory_cache(login: KerberosLogin) -> str:
    # The same keytab is the same cache, for a cache in memory lasts as long as the process.
    digest = hashlib.sha256(f"{login.principal}\0{login.keytab}".encode()).hexdigest()
    return f"MEMORY:tidelog-{digest[:32]}"


def check_readable(keytab: str, option: str) -> None:
    """Raises ``ConfigError`` if there is no such file, or none that may be read."""
    if not os.access(keytab, os.R_OK):
        what = "which this process may not read" if Path(keytab).exists() else "which is not there"
        raise ConfigError(f"{option} has the keytab {keytab}, {what}")
