"""The broker's loggers as the BROKER_LOGGER config resource shows and sets them.

Names are Python's, the root logger is called ``root``, and levels are Kafka's: TRACE, DEBUG, INFO, WARN,
ERROR, FATAL. Python has no TRACE; it is the level 5, below DEBUG. Levels are not kept over a restart, as in
Kafka. Called by the DescribeConfigs and IncrementalAlterConfigs handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidelog.errors import ErrorCode, KafkaError

ROOT_LOGGER = "root"
REQUEST_LOGGER = "kafka.request.logger"
"""Kafka's name of the logger that logs every request (``broker/exchange/request_log``)."""
TRACE = 5

_listeners: list[Callable[[], None]] = []

_LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}


def levels() -> dict[str, str]:
    """Every logger with the level that holds for it, its own or the nearest ancestor's."""
    found = {ROOT_LOGGER: _level_name(logging.getLogger().getEffectiveLevel())}
    for name, logger in logging.Logger.manager.loggerDict.items():
        if isinstance(logger, logging.Logger):
            found[name] = _level_name(logger.getEffectiveLevel())
    return found


def check_level(logger: str, level: str) -> None:
    """Raise INVALID_CONFIG when the logger does not exist or the level is none of Kafka's."""
    check_logger(logger)
    if level not in _LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {logger} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(_LEVELS))}",
        )


def check_logger(logger: str) -> None:
    """Raise INVALID_CONFIG when no logger has that name."""
    known = logging.Logger.manager.loggerDict.get(logger)
    if logger != ROOT_LOGGER and not isinstance(known, logging.Logger):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {logger} does not exist!")


def set_level(logger: str, level: str) -> None:
    """Give a logger a level of its own."""
    check_level(logger, level)
    _logger(logger).setLevel(_LEVELS[level])
    _tell()


def check_unset(logger: str) -> None:
    """Raise unless the logger exists and has ancestors to follow, which the root logger has not."""
    check_logger(logger)
    if logger == ROOT_LOGGER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT_LOGGER} logger is not allowed"
        )


def unset_level(logger: str) -> None:
    """Let a logger follow its ancestors again."""
    check_unset(logger)
    # What Kafka's own configuration says of it: every request is logged where somebody wants it, only.
    _logger(logger).setLevel(logging.WARNING if logger == REQUEST_LOGGER else logging.NOTSET)
    _tell()


def on_change(listener: Callable[[], None]) -> Callable[[], None]:
    """Call ``listener`` after every change of a level; returns how to stop it."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def declare_request_logger() -> logging.Logger:
    """The logger of requests, which is silent until somebody sets another level."""
    found = logging.getLogger(REQUEST_LOGGER)
    if found.level == logging.NOTSET:
        found.setLevel(logging.WARNING)
    return found


def _tell() -> None:
    for listener in tuple(_listeners):
        listener()


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT_LOGGER else name)


def _level_name(level: int) -> str:
    """Kafka's name of the level that lets through what ``level`` lets through."""
    for name in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR"):
        if level <= _LEVELS[name]:
            return name
    return "FATAL"
