"""``tidelog start``: run a broker in this process until it is told to stop.

The one command that has a start-up budget and the one that may import the broker. Plain arguments are read
by hand; argparse, which takes longer to import than its work is worth, is asked for help, and about whatever
is not plain or not right, so that it alone decides what is accepted (typer costs more than the whole rest of
the start). The configuration is put together from the properties file and the options, and
:func:`tidelog.broker.process.run` does the rest. Exit codes: 0 after a clean shutdown, 1 when the broker
cannot start (one sentence on stderr names the mend), 2 for a wrong command line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog import logs
from tidelog.config.broker_config import BrokerConfig, warnings_for
from tidelog.config.options.old_broker_options import current_options
from tidelog.errors import ConfigError, TidelogError
from tidelog.properties import read_properties

if TYPE_CHECKING:
    import argparse

_DEFAULT_LISTENER = "PLAINTEXT"
# Where the other commands look for a broker unless told otherwise.
_DEFAULT_ADDRESS = "127.0.0.1:9092"
_EVERY_INTERFACE = ("0.0.0.0", "::", "[::]")

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_WITH_VALUE = {
    "--listen": "listen",
    "--advertise": "advertise",
    "--data-dir": "data_dir",
    "--set": "set",
    "--metrics": "metrics",
    "--log-format": "log_format",
    "--log-level": "log_level",
}

logger = logging.getLogger(__name__)


class _WrongArgument(ConfigError):
    """The command line itself is wrong, which has an exit code of its own."""


class StartOptions:
    """The command line of ``tidelog start``."""

    def __init__(self) -> None:
        self.properties: str | None = None
        self.listen: str | None = None
        self.advertise: str | None = None
        self.data_dir: str | None = None
        self.metrics: str | None = None
        self.set: list[str] = []
        self.log_format = "text"
        self.log_level = "INFO"
        self.welcome = False


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    options = parse(arguments)
    logs.set_up(options.log_format, level=getattr(logging, options.log_level))
    try:
        raw, old = settings(options)
        config = BrokerConfig(raw)
    except (TidelogError, OSError) as error:
        return _refuse(error)
    for warning in (*filter(None, [old]), *warnings_for(raw)):
        logger.warning("%s", warning)
    from tidelog.broker.process import run

    try:
        run(config, announce=lambda address: _announce(address, options))
    except (TidelogError, OSError) as error:
        return _refuse(error)
    return 0


def parse(arguments: Sequence[str]) -> StartOptions:
    """The options in ``arguments``; ends the process where they ask for help or are wrong."""
    options = parse_plain(arguments)
    if options is None:
        options = StartOptions()
        vars(options).update(vars(_parser().parse_args(arguments)))
    return options


def parse_plain(arguments: Sequence[str]) -> StartOptions | None:
    """The options in ``arguments`` if these are plain, beyond doubt; ``None`` leaves them to argparse."""
    options = StartOptions()
    left = iter(arguments)
    for argument in left:
        if argument == "--welcome":
            options.welcome = True
        elif argument in _WITH_VALUE:
            value = next(left, "-")
            if value.startswith("-"):
                return None
            if argument == "--set":
                options.set.append(value)
            else:
                setattr(options, _WITH_VALUE[argument], value)
        elif argument.startswith("-") or options.properties is not None:
            return None
        else:
            options.properties = argument
    if options.log_format not in logs.FORMATS or options.log_level not in _LOG_LEVELS:
        return None
    return options


def settings(options: StartOptions) -> tuple[dict[str, str], str | None]:
    """The options of the properties file with those of the command line laid over them, as text.

    Names from before Kafka 3.0 are replaced by current ones; the second value is the warning about them.
    """
    raw = read_properties(options.properties) if options.properties is not None else {}
    # `--set` names options as the file does; under their current names it counts more than `--listen`.
    set_options = dict(map(_name_and_value, options.set))
    raw, warning = current_options(raw | set_options)
    current = {name: value for name, value in set_options.items() if name in raw}
    if options.data_dir is not None:
        raw["log.dirs"] = options.data_dir
    name = _listener_name(raw)
    if options.listen is not None:
        host, port = _host_and_port("--listen", options.listen)
        raw["listeners"] = f"{name}://{host}:{port}"
        raw.pop("advertised.listeners", None)
        if host in _EVERY_INTERFACE:
            # An address that means "all of mine" is none to connect to: clients are told this machine's name.
            raw["advertised.listeners"] = f"{name}://:{port}"
    if options.advertise is not None:
        host, port = _host_and_port("--advertise", options.advertise)
        raw["advertised.listeners"] = f"{name}://{host}:{port}"
    if options.metrics is not None:
        host, port = _host_and_port("--metrics", options.metrics)
        raw["metrics.listeners"] = f"{host}:{port}"
    return raw | current, warning


def _name_and_value(text: str) -> tuple[str, str]:
    option, separator, value = text.partition("=")
    if not separator or not option.strip():
        raise _WrongArgument(f"invalid --set {text!r}: write it as --set name=value")
    return option.strip(), value.strip()


def _listener_name(raw: dict[str, str]) -> str:
    """The name for an address given on the command line: the file's first client listener, if it has one."""
    reserved = {name.strip().upper() for name in raw.get("controller.listener.names", "").split(",")}
    for listener in raw.get("listeners", "").split(","):
        name, separator, _ = listener.strip().partition("://")
        if separator and name.upper() not in reserved:
            return name
    return _DEFAULT_LISTENER


def _host_and_port(option: str, text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise _WrongArgument(f"invalid {option} {text!r}: write it as HOST:PORT, for example 127.0.0.1:9092")
    return host, int(port)


def _announce(address: str, options: StartOptions) -> None:
    if options.log_format == "json":
        print(f'{{"event": "ready", "address": "{address}"}}', flush=True)
    else:
        # In one piece: threads log to the same file meanwhile.
        print(f"Tidelog is ready on {address}\n", end="", flush=True)
    if options.welcome:
        server = "" if address == _DEFAULT_ADDRESS else f" --bootstrap-server {address}"
        print(_WELCOME.format(address=address, tidelog=_own_command(), server=server), flush=True)


def _own_command() -> str:
    """How a person calls this program in the terminal next door."""
    import shutil

    if shutil.which("tidelog") is not None:
        return "tidelog"
    return f"{sys.executable} -m tidelog" if sys.argv[0].endswith(".py") else sys.argv[0]


def _refuse(error: BaseException) -> int:
    text = str(error)
    if isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {(error.strerror or text).lower()}"
    print(f"tidelog start: {text}", file=sys.stderr)
    return 2 if isinstance(error, _WrongArgument) else 1


_WELCOME = """
  Point any Kafka client at {address}, or try, in another terminal:

    {tidelog} topics create greetings{server}
    echo hello | {tidelog} produce greetings{server}
    {tidelog} consume greetings --from-beginning{server}

  Stop the broker with Ctrl-C.
"""


def option_names() -> list[str]:
    """The options of the command, as they are written."""
    options = (name for action in _parser()._actions for name in action.option_strings)
    return [name for name in options if name.startswith("--")]


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(
        prog="tidelog start",
        description="Start a broker. It prints one line with the word `ready` and its address, logs to "
        "stderr, and shuts down cleanly on SIGTERM or SIGINT.",
        epilog="Options that are not set come from the properties file, then from Kafka's defaults.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "properties",
        nargs="?",
        metavar="server.properties",
        help="a Kafka configuration file; it works unchanged",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="accept connections here (sets listeners; default: port 9092 on every interface)",
    )
    parser.add_argument(
        "--advertise", metavar="HOST:PORT", help="tell clients this address (sets advertised.listeners)"
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="keep all data here (sets log.dirs; default: /tmp/kafka-logs, as Kafka)",
    )
    parser.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve Prometheus metrics here, at /metrics (sets metrics.listeners)",
    )
    parser.add_argument(
        "--set",
        metavar="name=value",
        action="append",
        default=[],
        help="set any broker option; may be repeated",
    )
    parser.add_argument(
        "--log-format", choices=logs.FORMATS, default="text", help="the log format (default: text)"
    )
    parser.add_argument(
        "--log-level",
        choices=_LOG_LEVELS,
        default="INFO",
        help="the log level (default: INFO)",
    )
    parser.add_argument("--welcome", action="store_true", help="print commands to try, once ready")
    return parser
