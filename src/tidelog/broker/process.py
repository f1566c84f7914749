"""A broker as a process: the loop it runs on, signals, and the last words.

SIGTERM and SIGINT shut the broker down cleanly; while it loads logs or waits to register they end the start.
Another SIGTERM changes nothing, as in Kafka; another SIGINT (somebody presses Ctrl-C again) ends the process
at once. The garbage collector looks seldom: the objects of a broker live long, and looking through them again
and again would cost more than it finds. After the broker is ready handlers that were not needed yet are
imported, and the collector is told that what is there stays.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

from tidelog import logs
from tidelog.broker.app import Broker
from tidelog.broker.composition import broker_for
from tidelog.broker.state import StartGivenUp
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.config.options.broker_options import BROKER_OPTIONS
from tidelog.errors import StorageError
from tidelog.records import record_walker
from tidelog.records.compiled import report_interpreted
from tidelog.version import __version__, commit

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_FORCED_EXIT_CODE = 130
# A collection keeps all clients waiting: young ones are short, also while much that is new stays (a crowd of
# clients, say), and those of everything that lives are rare.
_GC_THRESHOLDS = (5_000, 4, 2_500)
# The loop gives up the interpreter with each call that reads or writes, and while a thread computes it waits
# this long to get it back; with Python's own 5 ms several times for each request.
_SWITCH_S = 0.0002
_REACH_TIMEOUT_S = 3.0


def run(config: BrokerConfig, announce: Callable[[str], None]) -> None:
    """Run a broker until a signal ends it; ``announce`` is called with its address when it is ready."""
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()
    sys.setswitchinterval(_SWITCH_S)
    _raise_file_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, announce))


def _raise_file_limit() -> None:
    """Allow as many open files as the system lets us: every partition and every connection needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.debug("The limit of open files stays at %d: %s", soft, error)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(config: BrokerConfig, announce: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    fatal: list[str] = []

    def on_signal(number: signal.Signals) -> None:
        if not stopping.is_set():
            logger.info("Shutting down after %s", number.name)
            stopping.set()
        elif number is signal.SIGINT:
            _end_at_once()

    def on_fatal(reason: str) -> None:
        fatal.append(reason)
        stopping.set()

    logs.tell_broker_id(config.node_id)
    logger.info("%s", start_line(config))
    broker = broker_for(config)
    broker.on_fatal = on_fatal
    early = _signals_during(broker)
    try:
        await broker.start()
    except StartGivenUp:
        logger.info("The broker has shut down after %s, before it was ready", early[0].name)
        return
    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    if early:
        on_signal(early[0])
    else:
        _greet(broker, announce)
    settling = loop.create_task(_settle(broker))
    await stopping.wait()
    settling.cancel()
    await broker.shut_down()
    logger.info("The broker has shut down")
    for number in _SIGNALS:
        # One more must not make a clean end look like another.
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    if fatal:
        raise StorageError(fatal[0])


def _signals_during(broker: Broker) -> list[signal.Signals]:
    """Have signals give up the start of ``broker``; gives the list that they go into.

    These handlers run wherever the process is: the loop stands still while logs are loaded.
    """
    received: list[signal.Signals] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            _end_at_once()
        received.append(signal.Signals(number))
        broker.give_up_start()

    for number in _SIGNALS:
        signal.signal(number, on_signal)
    return received


def _end_at_once() -> None:
    logger.warning("Stopping at once after a second signal")
    logging.shutdown()
    os._exit(_FORCED_EXIT_CODE)


def start_line(config: BrokerConfig) -> str:
    """Version, commit, and the options that are not as they are by default; secrets are not shown."""
    found = commit()
    version = f"Tidelog {__version__}{f' ({found})' if found else ''}, Python {sys.version.split()[0]}"
    told: list[str] = []
    for name, text in sorted(config.raw.items()):
        option = BROKER_OPTIONS.get(name)
        if option is not None and not option.sensitive and config.get(name) == option.default:
            continue
        # Of what is not known here nobody can say whether it is a secret.
        told.append(f"{name}={text if option is not None and not option.sensitive else '[hidden]'}")
    return f"{version} starts with {', '.join(told) or 'the defaults'}"


def _greet(broker: Broker, announce: Callable[[str], None]) -> None:
    logs.tell_broker_id(broker.broker_id)
    logger.info(
        "Broker %d of cluster %s serves %s",
        broker.broker_id,
        broker.image.cluster_id,
        _listed(broker.advertised),
    )
    report_interpreted(record_walker.COMPILED)
    announce(_address(broker.advertised[0]))
    _warn_of_too_few_files(broker)


def _warn_of_too_few_files(broker: Broker) -> None:
    """Say at start, and not when the first request fails, that the limit of open files is too low."""
    allowed, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = broker.log_dirs.files_needed()
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        logger.warning(
            "The broker may open %d files, and its logs and connections may come to need %d (three for each "
            "segment, and one for each connection): start it after `ulimit -n %d`, or with LimitNOFILE=%d "
            "in its systemd unit%s",
            allowed,
            needed,
            needed,
            needed,
            "" if hard == resource.RLIM_INFINITY or hard >= needed else f"; the hard limit is {hard}",
        )


async def _settle(broker: Broker) -> None:
    """What can wait until the broker serves."""
    await broker.warm_up()
    gc.freeze()
    for listener in broker.advertised:
        reason = await _unreachable(listener)
        if reason is not None:
            logger.warning(
                "Clients are told to connect to %s, but %s: set advertised.listeners (or --advertise) to an "
                "address that they can reach",
                listener,
                reason,
            )


async def _unreachable(listener: Listener) -> str | None:
    """Why an advertised address cannot be reached from here, which is where it most easily could."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_REACH_TIMEOUT_S):
            found = await loop.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = found[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setblocking(False)
                await loop.sock_connect(probe, address)
    except (socket.gaierror, UnicodeError):
        return f"the host {listener.host} cannot be resolved here"
    except TimeoutError:
        return "nothing answers there within a few seconds"
    except OSError as error:
        return f"it cannot be reached from here ({error.strerror or error})"
    return None


def _address(listener: Listener) -> str:
    return str(listener).partition("://")[2]


def _listed(listeners: tuple[Listener, ...]) -> str:
    return ", ".join(map(str, listeners))
