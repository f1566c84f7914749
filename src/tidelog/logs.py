"""The broker's log: one line per event on stderr, readable or as JSON.

Set up once by ``cli/start`` before anything else runs. ``text`` is for people (time, level, message,
logger), ``json`` is one object per line for collectors. Lines of the levels WARNING and above carry no
traceback unless somebody logged an exception on purpose; a person who starts a broker sees sentences.
"""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import TextIO

from tidelog.printable import printable, printable_json

FORMATS = ("text", "json")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


_broker_id: int | None = None


def tell_broker_id(broker_id: int) -> None:
    """Every line from now on says whose it is."""
    global _broker_id
    _broker_id = broker_id


class TextFormatter(logging.Formatter):
    """``2026-11-15 10:20:30,123 INFO    [broker 1] the message (tidelog.broker.app)``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s (%(name)s)")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, which is one line whatever the message holds; a traceback follows it."""
        record.message = printable(record.message)
        if _broker_id is not None:
            record.message = f"[broker {_broker_id}] {record.message}"
        return super().formatMessage(record)

    def formatException(self, ei: ExcInfo) -> str:
        """The traceback, whose messages may hold text from peers."""
        return "\n".join(map(printable, super().formatException(ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC, ISO 8601), level, logger, message and, if any, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for ``record``."""
        # Imported here: a start in the other format can do without it.
        import json

        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if _broker_id is not None:
            line["broker"] = _broker_id
        # What a line is about, where whoever logs it says so field by field.
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False))


def set_up(log_format: str = "text", *, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send the log of everything to ``stream`` (stderr) in the given format."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Asyncio's remarks about slow callbacks and the selector in use are for its own developers.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    # What costs a microsecond per line and is printed nowhere need not be found out.
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False
