"""AlterUserScramCredentials 0: set and remove the SCRAM credentials of users.

Behaviour as in Kafka: clients send salted passwords, of which the broker keeps two keys; users succeed and
fail one by one, each as a whole; a change is in force for the next login and leaves sessions as they are. Any
broker of a cluster does it, not the controller alone. Over a connection that a delegation token has opened
nothing is changed: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.membership import Admin
from tidelog.controller.scram_users import ScramAlteration, ScramDeletion, ScramUpsertion, plan_alterations
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

API = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
VERSIONS = (0, 0)


async def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest, admin: Admin
) -> AlterUserScramCredentialsResponse:
    """Change what is asked for, user by user."""
    if context.session.by_token:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "credentials of users cannot be changed by somebody who logged in with a delegation token",
        )
    alterations: list[ScramAlteration] = [
        ScramDeletion(each.name, each.mechanism) for each in request.deletions
    ]
    alterations += [
        ScramUpsertion(
            each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password)
        )
        for each in request.upsertions
    ]
    results = []
    for user, edit in plan_alterations(alterations).items():
        outcome: KafkaError | None = None
        if isinstance(edit, KafkaError):
            outcome = edit
        else:
            try:
                await admin.change_user_config(user, edit)
            except KafkaError as error:
                outcome = error
        results.append(_result(user, outcome))
    return AlterUserScramCredentialsResponse(results=results)


def refuse(request: AlterUserScramCredentialsRequest, error: KafkaError) -> AlterUserScramCredentialsResponse:
    """The same refusal for every user."""
    users = dict.fromkeys(each.name for each in request.deletions)
    users |= dict.fromkeys(each.name for each in request.upsertions)
    return AlterUserScramCredentialsResponse(results=[_result(user, error) for user in users])


def _result(user: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=user, error_message=None)
    return AlterUserScramCredentialsResult(
        user=user, error_code=error.code, error_message=error.message or None
    )
