"""Crowds that attack one broker, and what its other clients notice: `python -m benchmarks attacks`.

While an attack goes on, a neighbour produces a record (acks=all) and fetches one every ten milliseconds
(`neighbour_probe`), and twenty times a second a new client connects from another address, by the way that is
attacked (`newcomer_probe`). Times count from when a request was due. Memory is the greatest resident set of
the broker during the attack. Everything runs on one machine, over loopback: on two cores, attackers and
clients share them with the broker. Each attack has a broker of its own, of which all listeners are open:

- "20,000 keys": 64 clients log in with forged tokens, each naming another key of a file of 20,000 keys, which
  is written anew every second;
- "200,000 client ids": each produces, fetches or asks for telemetry subscriptions, under quotas of client ids
  and with metrics on; it may take a minute (--seconds 60);
- "200 slow readers": each asks four times for 50 MB and reads a byte now and then;
- "3,000 half-open handshakes": each sends half of its first message; those turned away come again;
- "pipelined scrapes": two addresses with 16 connections each ask for /metrics without end;
- "pushes of 100 MB": four clients push telemetry, for which no permission is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import resource
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from foreign.broker_process import Tidelog, free_port
from foreign.toolchain import ROOT

from benchmarks import attacks, neighbour_probe, newcomer_probe, wire
from benchmarks.contestants import create_topic, scratch
from benchmarks.neighbour import _forget_peak, _peak_bytes
from benchmarks.tokens import Issuer
from tidelog.cli.certs.authority import Authority
from tidelog.client import Admin
from tidelog.client.admin.quotas import QuotaAlteration

KEYS = 20_000
FORGED_TOKENS = 2000
BATCH_BYTES = 900_000
BATCHES = 60
_BOUND_S = 120.0
_JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


class Ports(NamedTuple):
    """Where the broker listens."""

    plain: int
    tls: int
    login: int
    http: int


class Target(NamedTuple):
    """A broker that runs, with the ids of its topics."""

    broker: Tidelog
    ports: Ports
    issuer: Issuer
    key_file: Path
    neighbour: bytes
    attacked: bytes


class Crowd(NamedTuple):
    """An attack, and the way by which new clients come beside it."""

    make: Callable[[Target], attacks.CrowdAttack]
    port: str
    newcomers: str


CROWDS = {
    "20,000 keys": Crowd(lambda target: _forged(target), "login", "login"),
    "200,000 client ids": Crowd(lambda target: attacks.client_ids(target.attacked), "plain", "plain"),
    "200 slow readers": Crowd(lambda target: attacks.slow_readers(target.attacked), "plain", "plain"),
    "3,000 half-open handshakes": Crowd(lambda target: attacks.half_open_handshakes, "tls", "tls"),
    "pipelined scrapes": Crowd(lambda target: attacks.pipelined_scrapes, "http", "http"),
    "pushes of 100 MB": Crowd(lambda target: attacks.huge_pushes, "plain", "plain"),
}


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks attacks", description=__doc__)
    parser.add_argument("attack", nargs="*", help=f"of {', '.join(map(repr, CROWDS))} (default: all)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each goes on, 60 at most")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is run (default: %(default)s)")
    parser.add_argument(
        "--data-root", type=Path, default=Path("/dev/shm"), help="where data goes (default: %(default)s)"
    )
    asked = parser.parse_args(given)
    chosen = asked.attack or ["nothing", *CROWDS]
    unknown = set(chosen) - {"nothing", *CROWDS}
    if unknown:
        parser.error(f"no attack {', '.join(sorted(unknown))}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        for name in chosen:
            rounds = [_round(name, asked.data_root, min(asked.seconds, 60.0)) for _ in range(asked.rounds)]
            middle = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
            print(f"{name}: " + ", ".join(f"{key} {value:,.1f}" for key, value in middle.items()), flush=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return 0


def _round(name: str, root: Path, seconds: float) -> dict[str, float]:
    with scratch(root) as directory, _target(directory) as target:
        crowd = CROWDS.get(name)
        _watch(target, None, "plain", min(seconds, 2.0))  # connections and hot paths
        _forget_peak(target.broker)
        seen = _watch(target, crowd, "plain" if crowd is None else crowd.newcomers, seconds)
        peak = _peak_bytes(target.broker)
        found: dict[str, float] = {}
        for kind in ("produce", "fetch", "newcomers"):
            samples = seen[kind]
            assert isinstance(samples, list)
            cuts = statistics.quantiles(samples, n=100)
            found[f"{kind} p50 ms"], found[f"{kind} p99 ms"] = cuts[49] * 1e3, cuts[98] * 1e3
            found[f"{kind} longest ms"] = max(samples) * 1e3
        for kind in ("repeated", "turned away", "attacks"):
            count = seen[kind]
            assert isinstance(count, int)
            found[kind] = count
        found["peak MB"] = peak / 1e6
        return found


@contextlib.contextmanager
def _target(directory: Path) -> Iterator[Target]:
    issuer = Issuer(KEYS)
    key_file = directory / "keys.json"
    key_file.write_bytes(issuer.key_set())
    issued = Authority.create("benchmark").issue("broker", ("localhost", "127.0.0.1"))
    (directory / "broker.pem").write_text(issued.key_pem + issued.certificate_pem)
    broker = Tidelog(directory / "broker")
    ports = Ports(broker.port, free_port(), free_port(), free_port())
    listeners = f"PLAINTEXT://{broker.address},SSL://127.0.0.1:{ports.tls},LOGIN://127.0.0.1:{ports.login}"
    broker.options = {
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,LOGIN:SASL_PLAINTEXT",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": key_file.as_uri(),
        "listener.name.login.oauthbearer.sasl.jaas.config": _JAAS,
        "metrics.listeners": f"127.0.0.1:{ports.http}",
    }
    broker.start()
    try:
        ids = [create_topic(broker, name) for name in ("neighbour", "attacked")]
        with wire.connect(ports.plain) as connection:
            for _ in range(BATCHES):
                wire.ask(connection, wire.produce_request(ids[1], 0, bytes(wire.batch(1, BATCH_BYTES))))
        with Admin(bootstrap_servers=broker.address) as admin:
            quotas = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}
            admin.alter_client_quotas([QuotaAlteration({"client-id": None}, quotas)])
        yield Target(broker, ports, issuer, key_file, *ids)
    finally:
        broker.kill()


def _forged(target: Target) -> attacks.CrowdAttack:
    issuer = target.issuer
    step = KEYS // FORGED_TOKENS
    attack = attacks.forged_logins([issuer.token(each, is_genuine=False) for each in range(0, KEYS, step)])

    def and_new_keys(port: int, stop: attacks.Stop, count: attacks.Count) -> None:
        def write_keys() -> None:
            written = target.key_file.with_suffix(".new")
            while not stop.wait(1.0):
                written.write_bytes(issuer.key_set())
                written.replace(target.key_file)

        writer = threading.Thread(target=write_keys)
        writer.start()
        attack(port, stop, count)
        writer.join()

    return and_new_keys


def _watch(
    target: Target, crowd: Crowd | None, newcomers: str, seconds: float
) -> dict[str, list[float] | int]:
    """Let the neighbour and new clients work for some seconds while an attack goes on."""
    port = getattr(target.ports, newcomers)
    token = (target.issuer.token(KEYS - 1),) if newcomers == "login" else ()
    commands = (
        ("neighbour_probe", str(target.ports.plain), target.neighbour.hex(), str(seconds)),
        ("newcomer_probe", newcomers, str(port), str(seconds), *token),
    )
    forked = multiprocessing.get_context("fork")
    stop = forked.Event()
    count = forked.Value("q", 0)
    attacker = None
    if crowd is not None:
        arguments = (getattr(target.ports, crowd.port), stop, count)
        attacker = forked.Process(target=crowd.make(target), args=arguments)
    with contextlib.ExitStack() as stack:
        probes = []
        for command in commands:
            arguments_ = [sys.executable, "-m", f"benchmarks.{command[0]}", *command[1:]]
            probe = subprocess.Popen(arguments_, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            stack.callback(probe.wait)
            stack.callback(probe.kill)
            probes.append(probe)
        for probe in probes:
            assert probe.stdout is not None
            if probe.stdout.readline().strip() != "ready":
                raise RuntimeError("a client was not served before the attack")
        if attacker is not None:
            attacker.start()
            stack.callback(attacker.join)
        stack.callback(stop.set)
        bound_s = _BOUND_S + neighbour_probe.BOUND_S + 3 * newcomer_probe.PATIENCE_S
        neighbour, new = (json.loads(probe.communicate(timeout=bound_s)[0]) for probe in probes)
    return {
        "produce": neighbour["produce"],
        "fetch": neighbour["fetch"],
        "newcomers": new["samples"],
        "repeated": neighbour["failures"],
        "turned away": new["failures"],
        "attacks": count.value,
    }
