"""Who a broker or a client is to Kerberos, from the JAAS line that Kafka's files have for it.

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/kafka.keytab"
        principal="kafka/broker1.example.org@EXAMPLE.ORG";

With ``useKeyTab`` the keytab's keys prove it: a broker accepts tickets for its principal by them, a client
gets tickets by itself, and new ones before they end. With ``useTicketCache`` a client has the tickets that
``kinit`` has fetched. Options that are about how Java keeps keys or asks for passwords change nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.errors import ConfigError

GSSAPI = "GSSAPI"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
IBM_MODULE = "com.ibm.security.auth.module.Krb5LoginModule"
SERVICE_NAME = "sasl.kerberos.service.name"
KEYTAB_LINE = f'{MODULE} required useKeyTab=true keyTab="…" principal="…";'
ANY_PRINCIPAL = "*"


class KerberosLogin(NamedTuple):
    """What proves who one is; without anything it is what the environment says (KRB5CCNAME and so on)."""

    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


def kerberos_login(options: Mapping[str, str], option: str) -> KerberosLogin:
    """From the options of a JAAS line, which is set by ``option``; raises ``ConfigError``."""
    uses_keytab, uses_cache = _is_true(options, "useKeyTab"), _is_true(options, "useTicketCache")
    principal = options.get("principal") or None
    keytab = options.get("keyTab") or None
    if uses_keytab and uses_cache:
        raise ConfigError(f"{option} has both useKeyTab and useTicketCache: set one of them")
    if uses_keytab:
        if keytab is None:
            raise ConfigError(f'{option} has useKeyTab without a keytab: add keyTab="/path/to/the.keytab"')
        if principal is None:
            raise ConfigError(f'{option} does not say which principal of the keytab it is: add principal="…"')
        return KerberosLogin(principal, keytab.removeprefix("FILE:"))
    if keytab is not None:
        raise ConfigError(f"{option} has a keyTab that is not used: add useKeyTab=true")
    if uses_cache:
        return KerberosLogin(principal, ticket_cache=options.get("ticketCache") or None)
    raise ConfigError(
        f"{option} has no way to log in: add useKeyTab=true with keyTab and principal, or "
        "useTicketCache=true; passwords are not asked for"
    )


def service_name(options: Mapping[str, str], configured: str | None, option: str) -> str | None:
    """The brokers' service, of ``sasl.kerberos.service.name`` or ``serviceName`` of a JAAS line."""
    in_line = options.get("serviceName") or None
    if in_line is not None and configured is not None and in_line != configured:
        raise ConfigError(
            f"{SERVICE_NAME} is {configured}, and {option} has the serviceName {in_line}: set one of them"
        )
    return in_line or configured


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").strip().lower() == "true"
