"""The broker's loggers as the BROKER_LOGGER config resource shows and sets them.

Names are Python's, the root logger is called ``root``, and levels are Kafka's: TRACE, DEBUG, INFO, WARN,
ERROR, FATAL. Python has no TRACE; it is the level 5, below DEBUG. Levels are not kept over a restart, as in
Kafka. Called by the DescribeConfigs and IncrementalAlterConfigs handlers.
"""

from __future__ import annotations

import logging

from tidelog.errors import ErrorCode, KafkaError

ROOT_LOGGER = "root"
TRACE = 5

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
    _logger(logger).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT_LOGGER else name)


def _level_name(level: int) -> str:
    """Kafka's name of the level that lets through what ``level`` lets through."""
    for name in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR"):
        if level <= _LEVELS[name]:
            return name
    return "FATAL"
