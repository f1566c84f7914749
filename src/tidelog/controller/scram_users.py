"""What a request to change SCRAM credentials makes of users, by Kafka's rules.

A request lists credentials to remove and to set. It is judged user by user: one that breaks a rule leaves all
credentials of its user as they are. Pure functions; the handler has the outcome written.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.security.sasl.scram_credential import BY_TYPE, ScramCredential


class ScramDeletion(NamedTuple):
    """A credential to remove; ``mechanism`` is the number of a request, which may be no known one."""

    user: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    """A credential to set."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.user!r}, {self.mechanism}, {self.iterations})"


ScramAlteration = ScramDeletion | ScramUpsertion


class ScramEdit:
    """The changes of one user, once they are known to be allowed."""

    def __init__(self, alterations: Iterable[ScramAlteration]) -> None:
        self._alterations = tuple(alterations)

    def __call__(self, entries: Mapping[str, str]) -> dict[str, str]:
        """The user's entries after them; refuses to remove what is not there, with RESOURCE_NOT_FOUND."""
        edited = dict(entries)
        for each in self._alterations:
            mechanism = BY_TYPE[each.mechanism]
            if isinstance(each, ScramUpsertion):
                credential = ScramCredential.of_salted_password(
                    mechanism, each.salt, each.salted_password, each.iterations
                )
                edited[mechanism.label] = credential.encode()
            elif edited.pop(mechanism.label, None) is None:
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
        return edited


def plan_alterations(alterations: Iterable[ScramAlteration]) -> dict[str, ScramEdit | KafkaError]:
    """The edit of each user, or why there is none; in the order in which users are first named."""
    by_user: defaultdict[str, list[ScramAlteration]] = defaultdict(list)
    for each in alterations:
        by_user[each.user].append(each)
    outcomes: dict[str, ScramEdit | KafkaError] = {}
    for user, of_user in by_user.items():
        try:
            _check(of_user)
        except KafkaError as error:
            outcomes[user] = error
        else:
            outcomes[user] = ScramEdit(of_user)
    return outcomes


def _check(alterations: list[ScramAlteration]) -> None:
    for each in alterations:
        if not each.user:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        mechanism = BY_TYPE.get(each.mechanism)
        if mechanism is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(each, ScramDeletion):
            continue
        if each.iterations < mechanism.min_iterations:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if each.iterations > mechanism.max_iterations:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        if not each.salt:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt must not be empty")
        if not each.salted_password:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Password must not be empty")
    if max(Counter(each.mechanism for each in alterations).values()) > 1:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
