"""The console's TOML file: clusters, logins, roles, masks, assistants. Read once, at the start.

    [clusters.production]
    bootstrap = "10.0.0.1:9092"
    client_config = "production.properties"   # beside this file
    colour = "red"

    [clusters.production.registry]
    url = "https://10.0.0.2:8081"

    [login]
    cluster = "production"                    # SCRAM users of this cluster

    [login.oidc]                              # and people of a provider
    issuer = "https://login.example.org/realms/staff"
    client_id = "tidelog-console"

    [[roles]]
    user = "alice"
    role = "operator"
    topics = ["orders-*"]

    [[masks]]
    topics = ["ml_*"]
    fields = ["phone"]

Every mistake is one sentence that names the file and the place.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tidelog.console.registry_settings import registry_settings
from tidelog.console.settings import (
    COLOURS,
    OIDC_PATH,
    ClusterSettings,
    Grant,
    LoginSettings,
    MaskRule,
    McpSettings,
    OidcSettings,
    Role,
    Way,
    is_loopback,
)
from tidelog.errors import ConfigError
from tidelog.properties import read_properties
from tidelog.security.sasl.jwks import PUBLIC_KEY_ALGORITHMS

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_OIDC = OidcSettings("", "")
"""Its defaults are those of the file."""
_LARGEST_SKEW_S = 300
_LARGEST_TOKEN_DAYS = 366


class _Registry(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    user: str = ""
    password: str = ""
    token: str = ""
    ca_file: str | None = None


class _Cluster(msgspec.Struct, forbid_unknown_fields=True):
    bootstrap: str
    client_config: str | None = None
    colour: str = "grey"
    registry: _Registry | None = None


class _Oidc(msgspec.Struct, forbid_unknown_fields=True):
    issuer: str
    client_id: str
    client_secret: str | None = None
    client_secret_file: str | None = None
    client_secret_env: str | None = None
    name: str = ""
    scopes: tuple[str, ...] = _OIDC.scopes
    user_claim: str = _OIDC.user_claim
    groups_claim: str = _OIDC.groups_claim
    algorithms: tuple[str, ...] = _OIDC.algorithms
    redirect_url: str = ""
    ca_file: str | None = None
    clock_skew_s: float = _OIDC.clock_skew_s


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    cluster: str | None = None
    session_hours: float = 12.0
    mechanism: str | None = None
    oidc: _Oidc | None = None


class _Mcp(msgspec.Struct, forbid_unknown_fields=True):
    allow_changes: bool = False
    audience: str = ""
    token_days: float = 30.0


class _Role(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    user: str | None = None
    group: str | None = None
    login: str | None = None
    clusters: tuple[str, ...] = ("*",)
    topics: tuple[str, ...] = ("*",)


class _Mask(msgspec.Struct, forbid_unknown_fields=True):
    topics: tuple[str, ...] = ("*",)
    fields: list[str] = []
    headers: list[str] = []
    key: bool = False
    shown_to: str = "operator"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    clusters: dict[str, _Cluster] = {}
    login: _Login | None = None
    roles: list[_Role] = []
    masks: list[_Mask] = []
    mcp: _Mcp | None = None


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a file says; a login without a cluster is one on the first of them."""

    clusters: tuple[ClusterSettings, ...] = ()
    login: LoginSettings | None = None
    grants: tuple[Grant, ...] = ()
    masks: tuple[MaskRule, ...] = ()
    mcp: McpSettings | None = None


def read_config_file(path: Path) -> ConfigFile:
    """Read and check a file; raises ``ConfigError``."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read --config {path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--config {path} is not UTF-8 text") from None
    try:
        found = msgspec.convert(tomllib.loads(text), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"--config {path}: {error}") from None
    try:
        return _checked(found, path.parent)
    except ConfigError as error:
        raise ConfigError(f"--config {path}: {error}") from None


def _checked(found: _File, folder: Path) -> ConfigFile:
    clusters = tuple(_cluster(name, each, folder) for name, each in found.clusters.items())
    login = None if found.login is None else _login(found.login, folder)
    if login is None and found.roles:
        raise ConfigError("roles require a [login] section, because users are known only after login")
    return ConfigFile(
        clusters,
        login,
        tuple(_grant(each, login) for each in found.roles if login is not None),
        tuple(_mask(each) for each in found.masks),
        None if found.mcp is None else _mcp(found.mcp, login),
    )


def _login(given: _Login, folder: Path) -> LoginSettings:
    mechanism = given.mechanism or _MECHANISMS[-1]
    if mechanism not in _MECHANISMS:
        raise ConfigError(f"login.mechanism must be {' or '.join(_MECHANISMS)}")
    if given.session_hours <= 0:
        raise ConfigError("login.session_hours must be above 0")
    # Who names a provider alone wants no passwords beside it.
    scram = given.oidc is None or given.cluster is not None or given.mechanism is not None
    oidc = None if given.oidc is None else _oidc(given.oidc, folder)
    return LoginSettings(given.cluster or "", given.session_hours, mechanism, scram, oidc)


def _oidc(given: _Oidc, folder: Path) -> OidcSettings:
    _require_safe_url("issuer", given.issuer)
    if given.redirect_url:
        _require_safe_url("redirect_url", given.redirect_url)
        if urlsplit(given.redirect_url).path != OIDC_PATH:
            raise ConfigError(
                f"login.oidc.redirect_url must end with {OIDC_PATH}: the console's address, then this path"
            )
    if "openid" not in given.scopes:
        raise ConfigError('login.oidc.scopes must include "openid"')
    wrong = [each for each in given.algorithms if each not in PUBLIC_KEY_ALGORITHMS]
    if wrong or not given.algorithms:
        raise ConfigError(
            f"login.oidc.algorithms: {', '.join(wrong) or 'none at all'} is not a public-key "
            f"algorithm; choose from {', '.join(PUBLIC_KEY_ALGORITHMS)}"
        )
    if not 0 <= given.clock_skew_s <= _LARGEST_SKEW_S:
        raise ConfigError(f"login.oidc.clock_skew_s must be between 0 and {_LARGEST_SKEW_S}")
    for name in ("client_id", "user_claim", "groups_claim"):
        if not getattr(given, name).strip():
            raise ConfigError(f"login.oidc.{name} is empty")
    ca_file = None if given.ca_file is None else folder / given.ca_file
    if ca_file is not None and not ca_file.is_file():
        raise ConfigError(f"login.oidc.ca_file {ca_file} is not a file")
    return OidcSettings(
        given.issuer,
        given.client_id,
        _secret(given, folder),
        given.name,
        given.scopes,
        given.user_claim,
        given.groups_claim,
        given.algorithms,
        given.redirect_url,
        ca_file,
        given.clock_skew_s,
    )


def _require_safe_url(name: str, url: str) -> None:
    """Codes and keys go over it: nobody on the way may read or change them."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https") or parts.username is not None:
        raise ConfigError(f"login.oidc.{name} {url!r} is not a valid URL: write it as https://host/path")
    if parts.query or parts.fragment:
        raise ConfigError(f"login.oidc.{name} {url!r} must not have a query or a fragment")
    if parts.scheme == "http" and not is_loopback(host):
        raise ConfigError(
            f"login.oidc.{name} {url!r} must start with https://, except for loopback addresses"
        )


def _secret(given: _Oidc, folder: Path) -> str | None:
    named = [
        name
        for name in ("client_secret", "client_secret_file", "client_secret_env")
        if getattr(given, name) is not None
    ]
    if len(named) > 1:
        raise ConfigError(f"login.oidc sets {' and '.join(named)}: keep one of them")
    secret = given.client_secret
    if given.client_secret_file is not None:
        path = folder / given.client_secret_file
        try:
            secret = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "it is not text"
            raise ConfigError(f"cannot read login.oidc.client_secret_file {path}: {why}") from None
    if given.client_secret_env is not None:
        secret = os.environ.get(given.client_secret_env, "").strip()
    if secret == "":
        raise ConfigError(f"login.oidc.{named[0]} is an empty secret; omit it for a client without a secret")
    return secret


def _mcp(given: _Mcp, login: LoginSettings | None) -> McpSettings:
    if not 0 < given.token_days <= _LARGEST_TOKEN_DAYS:
        raise ConfigError(f"mcp.token_days must be above 0 and at most {_LARGEST_TOKEN_DAYS}")
    if given.audience:
        if login is None or login.oidc is None:
            raise ConfigError("mcp.audience requires a login provider: configure it in [login.oidc]")
        if given.audience == login.oidc.client_id:
            raise ConfigError(
                "mcp.audience must differ from login.oidc.client_id, or ID tokens would be accepted "
                "as access tokens: configure a separate audience for this endpoint at the provider"
            )
    return McpSettings(given.allow_changes, given.audience, given.token_days)


def _grant(given: _Role, login: LoginSettings) -> Grant:
    role = _role(given.role, "roles")
    if (given.user is None) is (given.group is None):
        raise ConfigError("roles: each entry must have either a user or a group")
    if given.group is not None:
        if login.oidc is None:
            raise ConfigError(f"roles: group {given.group!r} requires [login.oidc] with a groups claim")
        if not given.group.strip() or given.login is not None:
            raise ConfigError(
                "roles: a group entry needs a name and no login: groups come from the login provider"
            )
        return Grant("", role, given.clusters, given.topics, given.group, Way.OIDC)
    try:
        way = None if given.login is None else Way(given.login)
    except ValueError:
        raise ConfigError(f"roles: login must be scram or oidc, got {given.login!r}") from None
    if (way is Way.OIDC and login.oidc is None) or (way is Way.SCRAM and not login.scram):
        raise ConfigError(f"roles: login {given.login} is not configured in [login]")
    if way is None and given.user != "*" and login.oidc is not None and login.scram:
        raise ConfigError(
            f"roles: user {given.user!r} is ambiguous: it may be a user of the cluster or of the provider; "
            'add login = "scram" or login = "oidc"'
        )
    return Grant(given.user or "", role, given.clusters, given.topics, way=way)


def _cluster(name: str, given: _Cluster, folder: Path) -> ClusterSettings:
    if given.colour not in COLOURS:
        raise ConfigError(f"clusters.{name}.colour must be one of {', '.join(COLOURS)}")
    options: dict[str, object] = {}
    if given.client_config is not None:
        options.update(read_properties(folder / given.client_config))
    registry = None
    if (asked := given.registry) is not None:
        registry = registry_settings(
            asked.url,
            f"clusters.{name}.registry.",
            user=asked.user,
            password=asked.password,
            token=asked.token,
            ca=None if asked.ca_file is None else folder / asked.ca_file,
        )
    return ClusterSettings(name, {**options, "bootstrap.servers": given.bootstrap}, given.colour, registry)


def _mask(given: _Mask) -> MaskRule:
    if not (given.fields or given.headers or given.key):
        raise ConfigError("a mask needs fields, headers, or key = true")
    return MaskRule(
        given.topics,
        tuple(given.fields),
        tuple(given.headers),
        given.key,
        _role(given.shown_to, "masks.shown_to"),
    )


def _role(text: str, where: str) -> Role:
    try:
        return {each.name.lower(): each for each in Role if each is not Role.NONE}[text.lower()]
    except KeyError:
        raise ConfigError(f"{where}: invalid role {text!r}; choose viewer, operator or admin") from None
