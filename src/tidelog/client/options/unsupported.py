"""Options of Java's clients that have no effect here, by the reason why.

A properties file written for a Java client can be used as it is: each of these that it sets is named in a
warning, once per process, and its value is not looked at.
"""

from __future__ import annotations

from typing import NamedTuple


class UnsupportedOptions(NamedTuple):
    """A group of option names and why they have no effect."""

    subject: str
    reason: str
    names: tuple[str, ...]


def _group(subject: str, reason: str, names: str) -> UnsupportedOptions:
    return UnsupportedOptions(subject, reason, tuple(names.split()))


UNSUPPORTED: tuple[UnsupportedOptions, ...] = (
    _group(
        "Metrics",
        "There is no JMX (see `metric.reporters`), and all figures are always kept.",
        """
        auto.include.jmx.reporter metrics.recording.level
        """,
    ),
    _group(
        "Classes of the JVM",
        "They name Java classes or algorithms of Java's security providers; TLS is OpenSSL's.",
        """
        config.providers sasl.client.callback.handler.class sasl.login.class security.providers
        ssl.engine.factory.class ssl.keymanager.algorithm ssl.provider
        ssl.secure.random.implementation ssl.trustmanager.algorithm
        """,
    ),
    _group(
        "Renewal of Kerberos tickets",
        "With a keytab Kerberos' library fetches new tickets by itself, when half of their time is over; a "
        "cache of tickets is renewed by whoever has filled it (`kinit -R`, k5start).",
        """
        sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
        """,
    ),
    _group(
        "Fetching OAuth tokens",
        "Tokens come from the function in `sasl.login.callback.handler.class`, which does all of this by "
        "itself.",
        """
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
        sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
        sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
        sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class
        sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name
        sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
        """,
    ),
    _group(
        "Not there yet",
        "Share groups, transactions of two phases and administration through controllers.",
        """
        bootstrap.controllers internal.throw.on.fetch.stable.offset.unsupported share.acknowledgement.mode
        share.acquire.mode transaction.two.phase.commit.enable
        """,
    ),
)

UNSUPPORTED_NAMES = {name: group.reason for group in UNSUPPORTED for name in group.names}
