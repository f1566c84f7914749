"""The console's TOML file: clusters, logins, roles, masks. Read once, at the start.

    [clusters.production]
    bootstrap = "10.0.0.1:9092"
    client_config = "production.properties"   # beside this file
    colour = "red"

    [login]
    cluster = "production"

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

import tomllib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tidelog.console.settings import COLOURS, ClusterSettings, Grant, LoginSettings, MaskRule, Role
from tidelog.errors import ConfigError
from tidelog.properties import read_properties

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class _Cluster(msgspec.Struct, forbid_unknown_fields=True):
    bootstrap: str
    client_config: str | None = None
    colour: str = "grey"


class _Login(msgspec.Struct, forbid_unknown_fields=True):
    cluster: str | None = None
    session_hours: float = 12.0
    mechanism: str = "SCRAM-SHA-512"


class _Role(msgspec.Struct, forbid_unknown_fields=True):
    user: str
    role: str
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


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """What a file says; a login without a cluster is one on the first of them."""

    clusters: tuple[ClusterSettings, ...] = ()
    login: LoginSettings | None = None
    grants: tuple[Grant, ...] = ()
    masks: tuple[MaskRule, ...] = ()


def read_config_file(path: Path) -> ConfigFile:
    """Read and check a file; raises ``ConfigError``."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--config {path} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"--config {path} is no text in UTF-8") from None
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
    login = None
    if found.login is not None:
        if found.login.mechanism not in _MECHANISMS:
            raise ConfigError(f"login.mechanism is {' or '.join(_MECHANISMS)}")
        if found.login.session_hours <= 0:
            raise ConfigError("login.session_hours is a number of hours above 0")
        login = LoginSettings(found.login.cluster or "", found.login.session_hours, found.login.mechanism)
    elif found.roles:
        raise ConfigError("roles need a [login] section: without logins nobody has a name")
    return ConfigFile(
        clusters,
        login,
        tuple(
            Grant(each.user, _role(each.role, "roles"), each.clusters, each.topics) for each in found.roles
        ),
        tuple(_mask(each) for each in found.masks),
    )


def _cluster(name: str, given: _Cluster, folder: Path) -> ClusterSettings:
    if given.colour not in COLOURS:
        raise ConfigError(f"clusters.{name}.colour is one of {', '.join(COLOURS)}")
    options: dict[str, object] = {}
    if given.client_config is not None:
        options.update(read_properties(folder / given.client_config))
    return ClusterSettings(name, {**options, "bootstrap.servers": given.bootstrap}, given.colour)


def _mask(given: _Mask) -> MaskRule:
    if not (given.fields or given.headers or given.key):
        raise ConfigError("a mask names fields, headers, or key = true")
    return MaskRule(
        given.topics,
        tuple(given.fields),
        tuple(given.headers),
        given.key,
        _role(given.shown_to, "masks.shown_to"),
    )


def _role(text: str, where: str) -> Role:
    try:
        return Role[text.upper()]
    except KeyError:
        raise ConfigError(f"{where}: {text!r} is no role; choose viewer, operator or admin") from None
