"""GSSAPI (RFC 4752) from the client's side: a Kerberos ticket for the broker's service proves who one is.

Broker and client prove themselves to each other, and agree on no layer of security behind the login, which is
all that Kafka's brokers offer. Tickets are fetched in a thread, for a KDC is asked over the network; one
login of a client at a time asks, and the others find what it has fetched. Used by ``from_options``, and by
brokers that log in at each other.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tidelog.client._network.security.mechanisms import Dialogue
from tidelog.client._network.security.sasl import SaslLogin
from tidelog.client.errors import AuthenticationError
from tidelog.errors import ConfigError
from tidelog.security.kerberos import library
from tidelog.security.kerberos.context import Context, KerberosError
from tidelog.security.kerberos.login import GSSAPI, KerberosLogin
from tidelog.security.sasl.gssapi import NO_LAYER, WITHOUT_LAYERS

if TYPE_CHECKING:
    from tidelog.client._address import Address


def gssapi_login(login: KerberosLogin, service: str, option: str) -> SaslLogin:
    """Logins at brokers of ``service``; raises ``ConfigError`` where extra or keytab are missing."""
    library.load()
    if login.keytab is not None:
        library.check_readable(login.keytab, option)
    one_at_a_time = threading.Lock()

    async def begin(address: Address) -> Dialogue:
        return _dialogue(address)

    def _dialogue(address: Address) -> Dialogue:
        with one_at_a_time:
            try:
                context = library.initiate(login, option, service, address.host)
                first = context.step(None)
            except (KerberosError, ConfigError) as error:
                raise AuthenticationError(
                    f"no ticket for {service}/{address.host}, the service of {address}: {error}"
                ) from error
        try:
            yield from gssapi(context, first)
        except KerberosError as error:
            raise AuthenticationError(f"{GSSAPI}: {address} does not prove that it is it: {error}") from error

    return SaslLogin(GSSAPI, begin, is_slow=True)


def gssapi(context: Context, first: bytes) -> Dialogue:
    """All messages of a login, of which ``context`` has made the ``first``."""
    answer = yield first
    while not context.is_complete:
        message = context.step(answer)
        answer = yield message
    offer = context.unwrap(answer)
    if len(offer) != len(WITHOUT_LAYERS) or not offer[0] & NO_LAYER:
        raise AuthenticationError(
            "GSSAPI: the broker asks for a layer of security, which Kafka does not have"
        )
    yield context.wrap(WITHOUT_LAYERS)
