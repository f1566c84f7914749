"""What the options of a SASL listener come to, read together and checked: its mechanisms and their lines.

``BrokerConfig`` reads them at start and before every dynamic change, and refuses with what is raised here;
``broker/access/authentication`` makes mechanisms of them. Nothing that looks like protection is passed over:
a mechanism, a class or a login module that cannot be honoured is refused by its name, with the way out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.config.listeners import Listener
from tidelog.config.options.listener_options import ListenerConfig, bare_names
from tidelog.config.options.sasl_options import KERBEROS_OPTIONS, OAUTHBEARER_OPTIONS, SASL_OPTIONS
from tidelog.errors import ConfigError
from tidelog.options import ConfigDef
from tidelog.security.kerberos.login import (
    ANY_PRINCIPAL,
    GSSAPI,
    IBM_MODULE,
    KEYTAB_LINE,
    MODULE,
    SERVICE_NAME,
    KerberosLogin,
    kerberos_login,
    service_name,
)
from tidelog.security.sasl.jaas import JaasError, JaasLine, parse_jaas
from tidelog.security.sasl.oauthbearer import OAUTHBEARER
from tidelog.security.sasl.own_tokens import ClientCredentials, UnsecuredTokenMaker, token_source
from tidelog.security.sasl.plain import PLAIN, plain_users
from tidelog.security.sasl.scram_credential import BY_LABEL

JAAS = "sasl.jaas.config"
TO_LOCAL_RULES = "sasl.kerberos.principal.to.local.rules"
_MECHANISMS = "sasl.enabled.mechanisms"
_HANDLER = "sasl.server.callback.handler.class"
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
_JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_INTER_BROKER = "sasl.mechanism.inter.broker.protocol"
_DELAY, _IDLE = "connection.failed.authentication.delay.ms", "connections.max.idle.ms"

_KAFKA = "org.apache.kafka.common.security."
_MODULES = {
    PLAIN: (f"{_KAFKA}plain.PlainLoginModule",),
    **dict.fromkeys(BY_LABEL, (f"{_KAFKA}scram.ScramLoginModule",)),
    OAUTHBEARER: (f"{_KAFKA}oauthbearer.OAuthBearerLoginModule",),
    GSSAPI: (MODULE, IBM_MODULE),
}
_UNSECURED = f"{_KAFKA}oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_SIGNED = (
    f"{_KAFKA}oauthbearer.OAuthBearerValidatorCallbackHandler",
    f"{_KAFKA}oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
_UNSECURED_LOGIN = f"{_KAFKA}oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
_LOGIN_HANDLERS = (
    f"{_KAFKA}oauthbearer.OAuthBearerLoginCallbackHandler",
    f"{_KAFKA}oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    _UNSECURED_LOGIN,
)
_HANDLERS = {
    PLAIN: (f"{_KAFKA}plain.internals.PlainServerCallbackHandler",),
    **dict.fromkeys(BY_LABEL, (f"{_KAFKA}scram.internals.ScramServerCallbackHandler",)),
    OAUTHBEARER: (*_SIGNED, _UNSECURED),
    GSSAPI: (),
}

_OPTIONS = ConfigDef((*SASL_OPTIONS, *KERBEROS_OPTIONS, *OAUTHBEARER_OPTIONS))

ForListener = Callable[[str, str | None], ListenerConfig]
"""The options of a listener and, where one is named, of a mechanism of it."""


class MechanismSettings(NamedTuple):
    """One mechanism of a listener."""

    name: str
    config: ListenerConfig
    jaas: JaasLine | None
    takes_unsecured_tokens: bool = False
    kerberos: KerberosLogin | None = None

    @property
    def jaas_option(self) -> str:
        """The option that its line was set by."""
        return self.config.name_of(JAAS)


class SaslSettings(NamedTuple):
    """One listener on which clients log in."""

    listener: Listener
    config: ListenerConfig
    mechanisms: tuple[MechanismSettings, ...]


class PasswordLogin(NamedTuple):
    """How a broker proves to others who it is, by PLAIN or SCRAM."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"PasswordLogin({self.mechanism!r}, {self.username!r})"


class TicketLogin(NamedTuple):
    """How a broker proves to others who it is, by GSSAPI."""

    kerberos: KerberosLogin
    service: str
    option: str
    """What has set it."""


class TokenLogin(NamedTuple):
    """How a broker proves to others who it is, by OAUTHBEARER."""

    settings: MechanismSettings
    url: str | None
    """Where its tokens come from; ``None`` if it makes them up."""
    client: ClientCredentials | None = None


BrokerLogin = PasswordLogin | TicketLogin | TokenLogin


def concerns_logins(name: str) -> bool:
    """Whether an option that has changed, for all listeners or one, is about logging in."""
    return any(each in _OPTIONS for each in (name, *bare_names(name)))


def sasl_settings(listeners: Sequence[Listener], for_listener: ForListener) -> dict[str, SaslSettings]:
    """The settings of those listeners on which clients log in, by name; raises :class:`ConfigError`."""
    return {each.name: _listener_settings(each, for_listener) for each in listeners if each.uses_sasl}


def _listener_settings(listener: Listener, for_listener: ForListener) -> SaslSettings:
    config = for_listener(listener.name, None)
    delay_ms, idle_ms = config.int(_DELAY), config.int(_IDLE)
    if 0 <= idle_ms <= delay_ms:
        raise ConfigError(
            f"{_DELAY}={delay_ms} should always be less than {_IDLE}={idle_ms} to prevent failed "
            "authentication responses from timing out"
        )
    names = [str(name).upper() for name in config.list(_MECHANISMS)]
    option = config.name_of(_MECHANISMS)
    if not names:
        raise ConfigError(f"{option} is empty, so that nobody could log in on {listener}: name a mechanism")
    for name in names:
        if name not in _MODULES:
            raise ConfigError(
                f"listener {listener} would offer the SASL mechanism {name} ({option}), which this release "
                f"does not have: set {option} to one or more of {', '.join(_MODULES)}"
            )
    return SaslSettings(
        listener, config, tuple(_mechanism_settings(name, listener, for_listener) for name in names)
    )


def _mechanism_settings(name: str, listener: Listener, for_listener: ForListener) -> MechanismSettings:
    config = for_listener(listener.name, name)
    prefix = f"listener.name.{listener.name.lower()}.{name.lower()}."
    handler = config.optional_str(_HANDLER)
    if handler is not None and handler not in _HANDLERS[name]:
        known = f", or name {' or '.join(_HANDLERS[name])}" if _HANDLERS[name] else ""
        raise ConfigError(
            f"{config.name_of(_HANDLER)} is {handler}, a class of Java that cannot be run here: drop the "
            f"option{known}"
        )
    login_handler = config.optional_str(_LOGIN_HANDLER)
    if login_handler is not None and (name != OAUTHBEARER or login_handler not in _LOGIN_HANDLERS):
        known = f", or name {' or '.join(_LOGIN_HANDLERS)}" if name == OAUTHBEARER else ""
        raise ConfigError(
            f"{config.name_of(_LOGIN_HANDLER)} is {login_handler}, a class of Java that cannot be run here "
            f"for {name}: drop the option{known}"
        )
    jaas = _jaas_line(name, config, prefix)
    if name == PLAIN and (jaas is None or not plain_users(jaas.options)):
        raise ConfigError(
            f"nobody could log in on {listener} by PLAIN: set {prefix}{JAAS} to "
            f'`{_MODULES[PLAIN][0]} required user_alice="…";` with an option for each user'
        )
    unsecured = name == OAUTHBEARER and handler == _UNSECURED
    if name == OAUTHBEARER and not unsecured and config.optional_str(_JWKS_URL) is None:
        raise ConfigError(
            f"no token could be checked on {listener}: set {prefix}{_JWKS_URL} to where the keys of their "
            f"issuer are; for tests, {prefix}{_HANDLER}={_UNSECURED} takes tokens that nobody has signed"
        )
    kerberos = _accepting_login(jaas, listener, config, prefix) if name == GSSAPI else None
    return MechanismSettings(name, config, jaas, unsecured, kerberos)


def _accepting_login(
    jaas: JaasLine | None, listener: Listener, config: ListenerConfig, prefix: str
) -> KerberosLogin:
    if jaas is None:
        mechanisms = config.name_of(_MECHANISMS)
        others = ", ".join(each for each in _MODULES if each != GSSAPI)
        raise ConfigError(
            f"listener {listener} would offer the SASL mechanism GSSAPI (Kerberos; it is the default of "
            f"{mechanisms}) without a key: set {mechanisms} to one or more of {others}, or {prefix}{JAAS} to "
            f"`{KEYTAB_LINE}`"
        )
    option = config.name_of(JAAS)
    login = kerberos_login(jaas.options, option)
    if login.keytab is None:
        raise ConfigError(
            f"{option} has no keytab, by which alone tickets can be accepted: use `{KEYTAB_LINE}`"
        )
    service_name(jaas.options, config.optional_str(SERVICE_NAME), option)
    # Rules that cannot be read are refused here, where a change of options is.
    from tidelog.security.kerberos.auth_to_local import AuthToLocal

    AuthToLocal(config.list(TO_LOCAL_RULES), option=config.name_of(TO_LOCAL_RULES))
    return login


def _jaas_line(mechanism: str, config: ListenerConfig, prefix: str) -> JaasLine | None:
    text = config.optional_str(JAAS)
    if text is None:
        return None
    option = config.name_of(JAAS)
    try:
        line = parse_jaas(text)
    except JaasError as error:
        raise ConfigError(f"{option} cannot be read: {error}") from error
    if line.module in _MODULES[mechanism]:
        return line
    if option.startswith(prefix):
        raise ConfigError(
            f"{option} names the login module {line.module}: {mechanism} is that of {_MODULES[mechanism][0]}"
        )
    # It is the line of another mechanism, for all of which there is one text.
    return None


def broker_login(mechanism: str, listener: Listener, settings: dict[str, SaslSettings]) -> BrokerLogin:
    """How a broker logs in at others over ``listener``; raises :class:`ConfigError`."""
    mechanism = mechanism.upper()
    found = [each for each in settings[listener.name].mechanisms if each.name == mechanism]
    if not found:
        raise ConfigError(
            f"{_INTER_BROKER} is {mechanism}, and must be one of {_MECHANISMS}, by which brokers log in at "
            f"each other on {listener}"
        )
    if mechanism == GSSAPI:
        return _ticket_login(found[0], listener)
    if mechanism == OAUTHBEARER:
        return _token_login(found[0], listener)
    options = found[0].jaas.options if found[0].jaas is not None else {}
    username, password = options.get("username"), options.get("password")
    if not username or not password:
        option = f"listener.name.{listener.name.lower()}.{mechanism.lower()}.{JAAS}"
        raise ConfigError(
            f"brokers log in at each other on {listener} by {mechanism}, and this one has no name to do so: "
            f'set {option} to `{_MODULES[mechanism][0]} required username="…" password="…";`'
        )
    return PasswordLogin(mechanism, username, password)


def _token_login(settings: MechanismSettings, listener: Listener) -> TokenLogin:
    config, option = settings.config, settings.jaas_option
    options = {} if settings.jaas is None else settings.jaas.options
    handler, url = config.optional_str(_LOGIN_HANDLER), config.optional_str(_TOKEN_URL)
    if handler == _UNSECURED_LOGIN or (handler is None and url is None):
        if not settings.takes_unsecured_tokens:
            raise ConfigError(
                f"brokers log in at each other on {listener} by OAUTHBEARER, and this one has no token to do "
                f"so: set {_TOKEN_URL} to where it gets one (https://…, file:///…)"
            )
        try:
            UnsecuredTokenMaker(options)
        except ConfigError as error:
            raise ConfigError(f"{option} cannot be used by brokers: {error}") from error
        return TokenLogin(settings, None)
    if url is None:
        raise ConfigError(
            f"{config.name_of(_LOGIN_HANDLER)} asks for tokens: set {_TOKEN_URL} to where they are"
        )
    client_id = options.get("clientId") or config.optional_str(_CLIENT_ID)
    secret = options.get("clientSecret") or config.optional_str(_CLIENT_SECRET)
    scope = options.get("scope") or config.optional_str("sasl.oauthbearer.scope")
    client = ClientCredentials(client_id, secret, scope) if client_id and secret else None
    try:
        token_source(url, client, config.list("tidelog.oauthbearer.allowed.urls"))
    except ConfigError as error:
        raise ConfigError(f"{config.name_of(_TOKEN_URL)} cannot be used: {error}") from error
    return TokenLogin(settings, url, client)


def _ticket_login(settings: MechanismSettings, listener: Listener) -> TicketLogin:
    assert settings.kerberos is not None
    assert settings.jaas is not None
    option = settings.jaas_option
    service = service_name(settings.jaas.options, settings.config.optional_str(SERVICE_NAME), option)
    if service is None:
        raise ConfigError(
            f"brokers log in at each other on {listener} by GSSAPI, and cannot know by which name: set "
            f"{SERVICE_NAME} to what their principals have before the slash, such as kafka"
        )
    if settings.kerberos.principal == ANY_PRINCIPAL:
        raise ConfigError(
            f"{option} has the principal {ANY_PRINCIPAL}, as which it cannot log in at others: name one"
        )
    return TicketLogin(settings.kerberos, service, option)
