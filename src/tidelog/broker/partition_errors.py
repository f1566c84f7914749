"""What a client is told about a partition that cannot be served: where exceptions become codes.

A refusal (``KafkaError``) carries its code. A disk error takes the log directory offline, damaged files are
CORRUPT_MESSAGE. Anything else is a bug: it is logged with its traceback and answered as UNKNOWN_SERVER_ERROR;
the request's other partitions, and the connection, go on.

Called by the handlers that answer partition by partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, StorageError

logger = logging.getLogger(__name__)

OnOffline = Callable[[LogDirOfflineError], None]
"""Told of a disk error that came up while serving; the directory goes offline."""


def error_code(on_offline: OnOffline, error: Exception, doing: str, partition: object) -> ErrorCode:
    """The code for ``error``, which came up while ``doing`` something with ``partition``."""
    match error:
        case KafkaError():
            return error.code
        case LogDirOfflineError():
            on_offline(error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        case StorageError():
            logger.error("Damage was met while %s %s: %s", doing, partition, error)
            return ErrorCode.CORRUPT_MESSAGE
    logger.error("Unexpected error in %s %s", doing, partition, exc_info=error)
    return ErrorCode.UNKNOWN_SERVER_ERROR
