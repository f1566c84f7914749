"""How tasks log in: by a delegation token that the driver gets, so that its password stays where it is.

The options of a job (``SourceOptions``, ``WriteOptions``) hold its login apart from everything else:

    GivenLogin     goes to executors as it is: no SASL, a token already, or delegationToken=false
    DriverLogin    the job's own, on the driver; pickled, it becomes a
    TokenLogin     the id and the HMAC of a delegation token of the same user

Invariant: a :class:`DriverLogin` cannot leave the driver's processes, for pickling is the only way out of
them. Spark plans every write, and every epoch of a stream, in a process of its own, so that the token is kept
for all of them (``token_file``). It is renewed when half of its time is over, and followed by another when it
has no whole period left to live; tasks of a stream are told which one with their offsets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidelog.errors import ConfigError, ErrorCode, KafkaError, TidelogError
from tidelog.security.sasl.jaas import JaasError, parse_jaas
from tidelog.spark.runtime._token_file import HeldToken, TokenFile

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin

logger = logging.getLogger(__name__)

_SASL = "sasl."
_SECRETS = frozenset({"sasl.password", "sasl.jaas.config"})
_DEFAULT_MECHANISM = "SCRAM-SHA-512"
_KNOWN_EVERYWHERE_S = 10.0
_LOOK_AGAIN_S = 0.05
_NO_TOKENS = frozenset({ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.UNSUPPORTED_VERSION})
_GONE = frozenset(
    {
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        ErrorCode.DELEGATION_TOKEN_EXPIRED,
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    }
)


class Login(Protocol):
    """Who a client of the job is."""

    def options(self) -> Mapping[str, str]:
        """The ``sasl.`` options of a client that logs in here."""

    def for_tasks(self) -> TokenLogin | None:
        """The login of tasks, if it is another than this; may ask the brokers for it."""


@dataclass(frozen=True, slots=True)
class GivenLogin:
    """A login that tasks use as it is."""

    given: Mapping[str, str] = field(default_factory=dict, repr=False)

    def options(self) -> Mapping[str, str]:
        return self.given

    def for_tasks(self) -> TokenLogin | None:
        return None


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """A delegation token, as it goes to executors."""

    mechanism: str
    token_id: str
    password: str = field(repr=False)

    def options(self) -> Mapping[str, str]:
        return {
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.token_id,
            "sasl.password": self.password,
            "sasl.tokenauth": "true",
        }

    def for_tasks(self) -> TokenLogin | None:
        return None


class DriverLogin:
    """The job's own login; what leaves the driver is a token in its place."""

    def __init__(
        self,
        client: Mapping[str, str],
        given: Mapping[str, str],
        mechanism: str,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """``client`` are the options without the login, ``mechanism`` is by which tasks log in.

        ``timeout_ms`` is how long brokers may take to answer, unless ``client`` says it.
        """
        timeouts = {"request.timeout.ms", "default.api.timeout.ms"}
        if timeout_ms is not None and not timeouts & client.keys():
            client = {**client, **dict.fromkeys(timeouts, str(timeout_ms))}
        self._client = client
        self._given = given
        self._mechanism = mechanism
        self._now_ms = now_ms
        self._held: HeldToken | None = None
        self._file = TokenFile.of_driver(
            [client.get("bootstrap.servers", ""), client.get("security.protocol", ""), *_named(given)]
        )

    def options(self) -> Mapping[str, str]:
        return self._given

    def for_tasks(self) -> TokenLogin:
        """The token of now."""
        if self._held is None or self._held.is_due(self._now_ms()):
            self._held = self._current()
        return TokenLogin(self._mechanism, self._held.token_id, self._held.password)

    def __reduce__(self) -> tuple[type[TokenLogin], tuple[str, str, str]]:
        token = self.for_tasks()
        return TokenLogin, (token.mechanism, token.token_id, token.password)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def _current(self) -> HeldToken:
        """The token that any process of this driver has got, or one that is good for longer."""
        with ExitStack() as stack:
            if self._file is not None:
                stack.enter_context(self._file.locked())
            known = None if self._file is None else self._file.read()
            now_ms = self._now_ms()
            held = known or self._held
            if held is not None and not held.is_due(now_ms):
                return held
            try:
                held = self._obtain(held, now_ms)
            except TidelogError as error:
                if held is None or held.is_over(now_ms):
                    raise
                logger.warning("the delegation token is good for a while, but is not renewed: %s", error)
                return held
            if self._file is not None:
                self._file.write(held)
            return held

    def _obtain(self, held: HeldToken | None, now_ms: int) -> HeldToken:
        # Writers plan each epoch, and find a token that is good: they do not need a client.
        from tidelog.client.admin.admin import Admin

        with Admin(_admin_options({**self._client, **self._given})) as admin:
            if held is not None and held.may_be_renewed(now_ms):
                try:
                    expires_ms = admin.renew_delegation_token(held.hmac)
                except KafkaError as error:
                    if error.code not in _GONE:
                        raise
                else:
                    return held.renewed(now_ms, expires_ms)
            try:
                token = admin.create_delegation_token()
            except KafkaError as error:
                raise _refused(error) from error
            logger.info("executors log in by delegation token %s of %s", token.token_id, token.owner)
            created = HeldToken(token.token_id, token.password, now_ms, token.expires_ms, token.max_ms)
            self._wait_until_known(admin, created)
            return created

    def _wait_until_known(self, admin: Admin, held: HeldToken) -> None:
        """Brokers learn of a token one after the other, and one that does not know it yet refuses it."""
        from tidelog.client.admin.admin import Admin
        from tidelog.client.errors import AuthenticationError, ClientError

        login = TokenLogin(self._mechanism, held.token_id, held.password)
        deadline = time.monotonic() + _KNOWN_EVERYWHERE_S
        for node in admin.describe_cluster().nodes:
            address = {"bootstrap.servers": f"{node.host}:{node.port}"}
            while True:
                try:
                    with Admin(_admin_options({**self._client, **login.options(), **address})) as client:
                        client.describe_cluster()
                    break
                except AuthenticationError as error:
                    if time.monotonic() > deadline:
                        raise ConfigError(
                            f"a broker does not take the delegation token of the executors ({error}): add "
                            f"{self._mechanism} to its sasl.enabled.mechanisms, name another one with "
                            "delegationTokenMechanism, or set delegationToken=false, which sends the "
                            "driver's own login to the executors"
                        ) from error
                    time.sleep(_LOOK_AGAIN_S)
                except ClientError as error:
                    logger.info("broker %s is not asked whether it knows the token: %s", node.id, error)
                    break


def login_of(
    client: Mapping[str, str], *, use_token: bool, mechanism: str | None, timeout_ms: int | None = None
) -> tuple[dict[str, str], Login]:
    """A job's client options, parted into the login and everything else."""
    given = {name: text for name, text in client.items() if name.startswith(_SASL)}
    rest = {name: text for name, text in client.items() if name not in given}
    if not rest.get("security.protocol", "").upper().startswith("SASL"):
        return rest, GivenLogin(given)
    if not use_token or _is_token(given):
        return rest, GivenLogin(given)
    own = given.get("sasl.mechanism", "")
    chosen = mechanism or (own if own.startswith("SCRAM-") else _DEFAULT_MECHANISM)
    return rest, DriverLogin(rest, given, chosen, timeout_ms=timeout_ms)


def _is_token(given: Mapping[str, str]) -> bool:
    """Whether the job itself was given a token, which is good for executors, and for no other token."""
    if given.get("sasl.tokenauth", "").lower() == "true":
        return True
    return _jaas_options(given).get("tokenauth", "").lower() == "true"


def _named(given: Mapping[str, str]) -> list[str]:
    """All that tells one login from another, but for its secrets."""
    named = [f"{name}={text}" for name, text in sorted(given.items()) if name not in _SECRETS]
    jaas = [f"{name}={text}" for name, text in sorted(_jaas_options(given).items()) if name != "password"]
    return [*named, *jaas]


def _jaas_options(given: Mapping[str, str]) -> Mapping[str, str]:
    try:
        return parse_jaas(given["sasl.jaas.config"]).options if "sasl.jaas.config" in given else {}
    except JaasError:
        # The client says so, in its own words, as soon as it is made.
        return {}


def _admin_options(client: Mapping[str, str]) -> dict[str, str]:
    from tidelog.client.options import ADMIN

    return {name: text for name, text in client.items() if name in ADMIN.options}


def _refused(error: KafkaError) -> TidelogError:
    if error.code in _NO_TOKENS:
        return ConfigError(
            "the brokers keep no delegation tokens, by which executors would log in without the driver's "
            "password: set delegation.token.secret.key on all brokers, or the option delegationToken=false, "
            "which sends the driver's own login to the executors"
        )
    return KafkaError(
        error.code,
        f"no delegation token for the executors: {error.message}; or set delegationToken=false, which sends "
        "the driver's own login to them",
    )
