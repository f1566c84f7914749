"""From the options of a SASL listener to the mechanisms that it offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.clock import Clock
from tidelog.config.sasl_settings import JAAS, TO_LOCAL_RULES, MechanismSettings, SaslSettings
from tidelog.errors import ConfigError
from tidelog.options import ConfigDef, TypedValues
from tidelog.security.kerberos.login import GSSAPI
from tidelog.security.sasl.jwks import FetchTimes, key_source
from tidelog.security.sasl.jwt import ClaimRules, SignedTokens, TokenValidator, UnsecuredTokens
from tidelog.security.sasl.mechanism import Mechanism
from tidelog.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerMechanism
from tidelog.security.sasl.plain import PLAIN, PlainMechanism, plain_users
from tidelog.security.sasl.scram import ScramCredentials, ScramServer
from tidelog.security.sasl.scram_credential import BY_LABEL

if TYPE_CHECKING:
    import ssl

_JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"


class MechanismParts(NamedTuple):
    """What mechanisms need besides their options."""

    credentials: ScramCredentials
    salt_secret: bytes
    """Makes up salts for names that nobody has."""
    clock: Clock


def mechanisms_of(settings: SaslSettings, parts: MechanismParts) -> dict[str, Mechanism]:
    """The mechanisms of a listener by name, in the order in which they are offered."""
    return {each.name: _mechanism(each, parts) for each in settings.mechanisms}


def _mechanism(settings: MechanismSettings, parts: MechanismParts) -> Mechanism:
    if settings.name == PLAIN:
        return PlainMechanism(plain_users(jaas_options(settings)))
    if settings.name == OAUTHBEARER:
        return OAuthBearerMechanism(_validator(settings, parts.clock))
    if settings.name == GSSAPI:
        return _gssapi(settings)
    return ScramServer(BY_LABEL[settings.name], parts.credentials, parts.salt_secret)


def _gssapi(settings: MechanismSettings) -> Mechanism:
    # Not before: all of it is needed where there is Kerberos alone.
    from tidelog.security.kerberos.auth_to_local import AuthToLocal
    from tidelog.security.kerberos.library import Acceptor, default_realm
    from tidelog.security.sasl.gssapi import GssapiMechanism

    assert settings.kerberos is not None
    acceptor = Acceptor(settings.kerberos, settings.jaas_option)
    rules = AuthToLocal(
        settings.config.list(TO_LOCAL_RULES), default_realm(), settings.config.name_of(TO_LOCAL_RULES)
    )
    return GssapiMechanism(acceptor.begin, rules)


def jaas_options(settings: MechanismSettings) -> Mapping[str, str]:
    """The options of a mechanism's JAAS line."""
    return {} if settings.jaas is None else settings.jaas.options


def _validator(settings: MechanismSettings, clock: Clock) -> TokenValidator:
    def now_s() -> float:
        return clock.time_ms() / 1000

    config = settings.config
    if settings.takes_unsecured_tokens:
        return UnsecuredTokens(_unsecured_rules(jaas_options(settings)), now_s)
    times = FetchTimes(
        refresh_s=config.int("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
        backoff_s=config.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000,
        backoff_max_s=config.int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000,
    )
    allowed = config.list("tidelog.oauthbearer.allowed.urls")
    try:
        keys = key_source(config.str(_JWKS_URL), times, allowed, jaas_trust(settings))
    except ConfigError as error:
        raise ConfigError(f"{config.name_of(_JWKS_URL)} cannot be used: {error}") from error
    rules = ClaimRules(
        subject_claim=config.str("sasl.oauthbearer.sub.claim.name"),
        scope_claim=config.str("sasl.oauthbearer.scope.claim.name"),
        issuer=config.optional_str("sasl.oauthbearer.expected.issuer"),
        audiences=frozenset(config.list("sasl.oauthbearer.expected.audience")),
        clock_skew_s=config.int("sasl.oauthbearer.clock.skew.seconds"),
    )
    return SignedTokens(keys, rules, now_s)


class _JaasOptions(TypedValues):
    """Options that stand in a JAAS line."""

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values


def jaas_trust(settings: MechanismSettings) -> Callable[[], ssl.SSLContext] | None:
    """By what the server of the keys is trusted: Kafka has it in the JAAS line, as ``ssl.`` options."""
    given = {name: text for name, text in jaas_options(settings).items() if name.startswith("ssl.")}
    if not given:
        return None
    from tidelog.config.options.tls_options import TLS_OPTIONS
    from tidelog.security.tls.context import client_context
    from tidelog.security.tls.settings import read_settings

    known = ConfigDef(TLS_OPTIONS)
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise ConfigError(f"{', '.join(unknown)} in {settings.config.name_of(JAAS)} is no option of TLS")
    values = _JaasOptions(known.defaults() | known.parse(given))
    checks_host = bool(values.str("ssl.endpoint.identification.algorithm"))

    def context() -> ssl.SSLContext:
        read = read_settings(values, lambda name: f"{name} in {settings.config.name_of(JAAS)}")
        return client_context(read, check_hostname=checks_host).context

    return context


def _unsecured_rules(options: Mapping[str, str]) -> ClaimRules:
    """What Kafka's JAAS options for unsecured tokens ask for."""
    skew_ms = options.get("unsecuredValidatorAllowableClockSkewMs", "0")
    if not skew_ms.isdecimal():
        raise ConfigError("unsecuredValidatorAllowableClockSkewMs of OAUTHBEARER must be a whole number")
    return ClaimRules(
        subject_claim=options.get("unsecuredValidatorPrincipalClaimName", "sub"),
        scope_claim=options.get("unsecuredValidatorScopeClaimName", "scope"),
        required_scopes=frozenset(options.get("unsecuredValidatorRequiredScope", "").split()),
        clock_skew_s=int(skew_ms) / 1000,
        needs_issue_time=False,
    )
