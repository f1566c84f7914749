"""Broker options about SASL: who may log in, how, and for how long.

Part of the table in ``broker_options``; names, types, defaults and bounds are Kafka 4's. All of them but
those that begin with ``tidelog.`` may be set for one listener, and for one mechanism of it
(``listener_options``). ``sasl_settings`` reads them together.
"""

from __future__ import annotations

from tidelog.options import Option, at_least, distinct_items, option

SASL_OPTIONS: tuple[Option, ...] = (
    option(
        "sasl.enabled.mechanisms",
        "list",
        ("GSSAPI",),
        "The mechanisms that SASL listeners offer: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI. "
        "The default is Kafka's; GSSAPI needs the extra tidelog[gssapi].",
        distinct_items(),
        dynamic="per-broker",
    ),
    option(
        "sasl.jaas.config",
        "password",
        None,
        "A JAAS line with users and passwords, as listener.name.<listener>.<mechanism>.sasl.jaas.config. For "
        'PLAIN each user is an option user_<name>="<password>"; username and password are what this broker '
        "logs in with at others.",
        dynamic="per-broker",
    ),
    option(
        "sasl.mechanism.inter.broker.protocol",
        "string",
        "GSSAPI",
        "The mechanism by which brokers log in at each other, where the listener between them is a SASL one.",
        dynamic="per-broker",
    ),
    option(
        "sasl.server.callback.handler.class",
        "class",
        None,
        "Kafka's own handlers are taken by their names; for OAUTHBEARER, OAuthBearerValidatorCallbackHandler "
        "wants signed tokens, and OAuthBearerUnsecuredValidatorCallbackHandler asks for unsigned ones, which "
        "anybody can write. Others are Java, and refused.",
    ),
    option(
        "sasl.login.callback.handler.class",
        "class",
        None,
        "Where a broker's own tokens come from when brokers log in at each other by OAUTHBEARER: "
        "OAuthBearerLoginCallbackHandler asks sasl.oauthbearer.token.endpoint.url, and "
        "OAuthBearerUnsecuredLoginCallbackHandler, Kafka's default, makes them up of "
        'unsecuredLoginStringClaim_sub="…" in the JAAS line. Others are Java, and refused.',
    ),
    option(
        "sasl.server.max.receive.size",
        "int",
        524288,
        "The longest message that a client may send before it has logged in; a longer one closes the "
        "connection before it is received.",
    ),
    option(
        "connection.failed.authentication.delay.ms",
        "int",
        100,
        "How long a client that could not log in waits for the answer, and for the end of its connection.",
        at_least(0),
        importance="low",
    ),
    option(
        "connections.max.reauth.ms",
        "long",
        0,
        "For how long a login is good; clients that know how log in again on the same connection before it "
        "ends, others are closed. 0 for as long as the credential is.",
    ),
    option(
        "tidelog.authentication.timeout.ms",
        "int",
        30000,
        "A client that has not logged in so long after it connected to a SASL listener is closed.",
        at_least(1),
        internal=True,
    ),
    option(
        "tidelog.bootstrap.user",
        "password",
        None,
        "The first user of a new cluster, as NAME:PASSWORD or NAME:PASSWORD:MECHANISM (SCRAM-SHA-256 unless "
        "said otherwise); created when there is no user with a SCRAM credential yet. The environment's "
        "TIDELOG_BOOTSTRAP_USER says the same.",
        internal=True,
    ),
)

TOKEN_OPTIONS: tuple[Option, ...] = (
    option(
        "delegation.token.secret.key",
        "password",
        None,
        "The secret that delegation tokens are made and checked by, the same on all brokers. Without it "
        "there are no tokens.",
    ),
    option(
        "delegation.token.max.lifetime.ms",
        "long",
        604800000,
        "For how long a token may be renewed.",
        at_least(1),
    ),
    option(
        "delegation.token.expiry.time.ms",
        "long",
        86400000,
        "How long a token is good unless it is renewed.",
        at_least(1),
    ),
    option(
        "delegation.token.expiry.check.interval.ms",
        "long",
        3600000,
        "How often tokens that are over are removed; nobody can log in by one before that either.",
        at_least(1),
        importance="low",
    ),
    option(
        "tidelog.delegation.token.max.per.owner",
        "int",
        1000,
        "How many tokens a user may have at a time. Whoever has logged in can make some, and every broker "
        "keeps all of them in memory. Kafka has no such limit.",
        at_least(1),
        importance="low",
        internal=True,
    ),
)

KERBEROS_OPTIONS: tuple[Option, ...] = (
    option(
        "sasl.kerberos.service.name",
        "string",
        None,
        "The name that all brokers have in common in their principals, such as kafka of "
        "kafka/broker1.example.org@EXAMPLE.ORG: brokers log in at each other by it.",
        dynamic="per-broker",
    ),
    option(
        "sasl.kerberos.principal.to.local.rules",
        "list",
        ("DEFAULT",),
        "Rules that make a user's name of a Kerberos principal: DEFAULT, which takes the part before / or @ "
        "of principals of the default realm, or RULE:[n:format](match)s/from/to/g with /L or /U at its end. "
        "The first that applies decides; where none does the client is refused.",
        dynamic="per-broker",
    ),
)

OAUTHBEARER_OPTIONS: tuple[Option, ...] = (
    option(
        "sasl.oauthbearer.jwks.endpoint.url",
        "string",
        None,
        "Where the keys are that tokens are signed by: a JSON Web Key Set at an https, http or file URL.",
    ),
    option(
        "sasl.oauthbearer.token.endpoint.url",
        "string",
        None,
        "Where a broker gets its own token for other brokers: an https or http URL that gives one for "
        "clientId and clientSecret of the JAAS line, or the URL of a file with one.",
    ),
    option(
        "sasl.oauthbearer.client.credentials.client.id",
        "string",
        None,
        "The same as clientId in the JAAS line.",
    ),
    option(
        "sasl.oauthbearer.client.credentials.client.secret",
        "password",
        None,
        "The same as clientSecret in the JAAS line.",
    ),
    option(
        "sasl.oauthbearer.scope",
        "string",
        None,
        "What a broker asks its own token to be good for; the same as scope in the JAAS line.",
    ),
    option(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "long",
        3600000,
        "How old keys from a URL may become before they are fetched again. A file is read when it changes.",
        importance="low",
    ),
    option(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "long",
        100,
        "How long to wait after keys could not be fetched; twice as long after each further failure.",
        importance="low",
    ),
    option(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "long",
        10000,
        "The longest such wait, and how often a token with an unknown key makes the broker look again.",
        importance="low",
    ),
    option(
        "sasl.oauthbearer.expected.audience",
        "list",
        (),
        "Tokens must be for one of these (aud); empty for any.",
        importance="low",
    ),
    option(
        "sasl.oauthbearer.expected.issuer",
        "string",
        None,
        "Tokens must be of this issuer (iss).",
        importance="low",
    ),
    option(
        "sasl.oauthbearer.clock.skew.seconds",
        "int",
        30,
        "How far the clock of whoever made a token may differ.",
        importance="low",
    ),
    option(
        "sasl.oauthbearer.scope.claim.name",
        "string",
        "scope",
        "The claim with a token's scopes.",
        importance="low",
    ),
    option(
        "sasl.oauthbearer.sub.claim.name",
        "string",
        "sub",
        "The claim that names whose token it is: the user.",
        importance="low",
    ),
    option(
        "tidelog.oauthbearer.allowed.urls",
        "list",
        (),
        "Where it is set, sasl.oauthbearer.jwks.endpoint.url and sasl.oauthbearer.token.endpoint.url must be "
        "among these. Kafka has a system property for it.",
        internal=True,
    ),
)
