"""Users with SCRAM credentials (KIP-554), as :class:`AsyncAdmin` hands them out and changes them.

A password is salted and hashed here; brokers are sent the outcome and never the password. Kafka's own names
are used: an upsertion sets a credential, whether the user had one or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.client._network.cluster import Cluster
from tidelog.client.errors import error_from
from tidelog.client.resources import Outcome
from tidelog.errors import KafkaError
from tidelog.security.sasl.scram_credential import (
    BY_LABEL,
    BY_TYPE,
    DEFAULT_ITERATIONS,
    ScramMechanism,
    new_salt,
    salted_password,
)
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)


@dataclass(frozen=True, slots=True)
class ScramInfo:
    """How a user's password is kept for one mechanism."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUser(Outcome):
    """A user and his SCRAM credentials."""

    name: str
    credentials: tuple[ScramInfo, ...] = ()
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """The password that a user shall have for a mechanism."""

    user: str
    password: str = field(repr=False)
    mechanism: str = ScramMechanism.SHA_512.label
    iterations: int = DEFAULT_ITERATIONS


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """A mechanism by which a user shall no longer log in."""

    user: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class ScramUserResult(Outcome):
    """What became of the changes of one user: all of them, or none."""

    user: str
    error: KafkaError | None = None


async def describe_user_scram_credentials(cluster: Cluster, users: Sequence[str]) -> list[ScramUser]:
    """See :meth:`AsyncAdmin.describe_user_scram_credentials`."""
    request = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in users] or None)
    response = await cluster.request_controller(
        request, DescribeUserScramCredentialsResponse, lambda answer: [answer.error_code]
    )
    error = error_from(response.error_code, response.error_message, "the users of the cluster")
    if error is not None:
        raise error
    return [
        ScramUser(
            each.user,
            tuple(ScramInfo(_label(one.mechanism), one.iterations) for one in each.credential_infos),
            error_from(each.error_code, each.error_message, f"user {each.user}"),
        )
        for each in response.results
    ]


async def alter_user_scram_credentials(
    cluster: Cluster, alterations: Sequence[ScramUpsertion | ScramDeletion]
) -> list[ScramUserResult]:
    """See :meth:`AsyncAdmin.alter_user_scram_credentials`."""
    request = AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name=each.user, mechanism=_type(each.mechanism))
            for each in alterations
            if isinstance(each, ScramDeletion)
        ],
        upsertions=[
            # Some milliseconds each, which nobody else on the loop has to wait for.
            await asyncio.to_thread(_upsertion, each)
            for each in alterations
            if isinstance(each, ScramUpsertion)
        ],
    )
    response = await cluster.request_controller(
        request,
        AlterUserScramCredentialsResponse,
        lambda answer: (each.error_code for each in answer.results),
    )
    return [
        ScramUserResult(each.user, error_from(each.error_code, each.error_message, f"user {each.user}"))
        for each in response.results
    ]


def _upsertion(upsertion: ScramUpsertion) -> ScramCredentialUpsertion:
    mechanism = BY_TYPE[_type(upsertion.mechanism)]
    salt = new_salt()
    return ScramCredentialUpsertion(
        name=upsertion.user,
        mechanism=mechanism.type,
        iterations=upsertion.iterations,
        salt=salt,
        salted_password=salted_password(mechanism, upsertion.password, salt, upsertion.iterations),
    )


def _type(label: str) -> int:
    mechanism = BY_LABEL.get(label.upper())
    if mechanism is None:
        raise ValueError(f"{label} is no SCRAM mechanism; those are {', '.join(BY_LABEL)}")
    return mechanism.type


def _label(type_: int) -> str:
    return BY_TYPE[type_].label if type_ in BY_TYPE else f"mechanism {type_}"
