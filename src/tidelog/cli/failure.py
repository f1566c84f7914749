"""One sentence for everything that can go wrong, with the mend in it.

Errors of the broker arrive as ``KafkaError``: its message is used where the broker sent one, and the table
below adds what a person can do about the code.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.cli.output import complain
from tidelog.errors import ErrorCode, KafkaError, TidelogError


class Failure(TidelogError):
    """A command cannot go on; the text is the sentence that a person reads."""


class WrongUsage(TidelogError):
    """Options that make no sense together or hold no sensible value; exit code 2."""


REMEDIES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "run `tidelog topics list` to see the topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name or pass --if-not-exists",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use 1 to 249 letters, digits, dots, underscores and dashes",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor cannot exceed the number of brokers",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller records or raise max.message.bytes of the topic",
    ErrorCode.RECORD_LIST_TOO_LARGE: "send smaller batches or raise segment.bytes of the topic",
    ErrorCode.NOT_ENOUGH_REPLICAS: "wait for replicas to catch up or lower min.insync.replicas",
    ErrorCode.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true on the brokers",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "request access to this topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "request access to this cluster",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: (
        "wait a moment and try again, or raise controller_mutation_rate (`tidelog quotas list` shows it)"
    ),
    ErrorCode.SECURITY_DISABLED: (
        "set authorizer.class.name and super.users on the brokers, and restart them"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: "check the broker's log for the failed log directory",
    ErrorCode.LOG_DIR_NOT_FOUND: "run `tidelog log-dirs describe` to see the log directories",
    ErrorCode.INVALID_UPDATE_VERSION: "run `tidelog features describe` to see the supported levels",
    ErrorCode.UNSUPPORTED_VERSION: "use a broker version that supports this command",
    ErrorCode.GROUP_ID_NOT_FOUND: "run `tidelog groups list` to see the groups",
    ErrorCode.NON_EMPTY_GROUP: "stop its consumers first (`tidelog groups describe --members` lists them)",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read this topic first",
    ErrorCode.UNKNOWN_MEMBER_ID: "a consumer has joined the group; stop its consumers and try again",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "request access to this group",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "run `tidelog transactions list` to see the transactional ids",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "request access to this transactional id",
    ErrorCode.INVALID_PRODUCER_EPOCH: "run `tidelog transactions describe-producers` to see the epoch",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (
        "a newer coordinator has written markers; run `tidelog transactions describe-producers` to "
        "see its epoch"
    ),
}


def report_failures(errors: Sequence[TidelogError]) -> None:
    """Say what failed, each thing once; exits with 1 if anything did."""
    for text in dict.fromkeys(map(sentence, errors)):
        complain(text)
    if errors:
        raise SystemExit(1)


def sentence(error: BaseException) -> str:
    """The one sentence for ``error``."""
    match error:
        case KafkaError():
            return _kafka(error)
        case TidelogError():
            return _trimmed(str(error))
        case OSError() if error.filename:
            return f"{error.filename}: {(error.strerror or str(error)).lower()}"
        case OSError():
            return (error.strerror or str(error) or type(error).__name__).lower()
    return (
        f"this is a bug in tidelog ({type(error).__name__}: {error}); set TIDELOG_DEBUG=1 for a "
        "traceback, and please report it"
    )


def _kafka(error: KafkaError) -> str:
    text = _trimmed(error.message) or "the broker refused"
    mend = REMEDIES.get(error.code)
    words = error.code.name.lower().replace("_", " ")
    said = text if text.lower().endswith(words) else f"{text} ({error.code.name})"
    return f"{said}: {mend}" if mend and "?" not in text else said


def _trimmed(text: str) -> str:
    return text.strip().rstrip(".")
