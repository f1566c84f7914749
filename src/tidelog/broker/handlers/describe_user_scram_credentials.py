"""DescribeUserScramCredentials 0: which users have SCRAM credentials, by which mechanisms, hashed how often.

Behaviour as in Kafka: without names all users are listed; a user who is named and has none is
RESOURCE_NOT_FOUND, one who is named twice DUPLICATE_RESOURCE. Salts and keys are told nobody. Over a
connection that a delegation token has opened nothing is told: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from collections import Counter

from tidelog.broker.access.authentication.credentials import credential_of
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.image import MetadataImage
from tidelog.scheduling.slices import Slices
from tidelog.security.sasl.scram_credential import ScramMechanism
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

API = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest, image: MetadataImage
) -> Slices[DescribeUserScramCredentialsResponse]:
    """List users with their mechanisms; others have their turn in between."""
    if context.session.by_token:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "credentials of users cannot be listed by somebody who logged in with a delegation token",
        )
    results: list[DescribeUserScramCredentialsResult] = []
    if not request.users:
        for user in sorted(image.user_configs):
            yield
            infos = _infos(image, user)
            if infos:
                results.append(_result(user, infos))
    else:
        for user, count in Counter(each.name for each in request.users).items():
            yield
            results.append(_named(image, user, count))
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def refuse(
    request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    """The refusal of the whole, with one result for nobody, as Kafka has it."""
    return DescribeUserScramCredentialsResponse(
        error_code=error.code,
        error_message=error.message or None,
        results=[_refused("", error.code, error.message)],
    )


def _named(image: MetadataImage, user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return _refused(
            user,
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    infos = _infos(image, user)
    if not infos:
        return _refused(
            user,
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {user}",
        )
    return _result(user, infos)


def _infos(image: MetadataImage, user: str) -> list[CredentialInfo]:
    found = ((each, credential_of(image, each, user)) for each in ScramMechanism)
    return [
        CredentialInfo(mechanism=mechanism.type, iterations=credential.iterations)
        for mechanism, credential in found
        if credential is not None
    ]


def _result(user: str, infos: list[CredentialInfo]) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)


def _refused(user: str, code: ErrorCode, message: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)
