"""Whatever clients call themselves, and however many they are: a page stays readable, and bounded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog.broker.context import RequestContext
from tidelog.broker.metrics.group_figures import GroupFigures
from tidelog.broker.metrics.observed import ObservedBroker
from tidelog.broker.metrics.quota_figures import quota_figures
from tidelog.broker.metrics.request_figures import _software_samples
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.broker.quotas.payer import LONGEST_CLIENT_ID, payer_of
from tidelog.clock import SystemClock
from tidelog.config.client_quotas import CLIENT_ID, PRODUCER_BYTE_RATE
from tidelog.metrics import catalog
from tidelog.metrics.page import Page
from tidelog.security.session import Session
from tidelog.wire.headers import parse_request_header

HOSTILE = (
    'a"} 1\nevil_total{x="',
    "line\nfeed",
    "back\\slash\\",
    '"',
    "\\n",
    "\r\t\x00\x1b[2J",
    "\u202eüñ\U0001f600",
    "# TYPE a counter",
    "{}",
    "x" * 32_000,
    "x" * 32_000 + "y",
)
# A line of the format, as Prometheus' own documentation has it.
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
LINE = re.compile(rf"[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{{(?:{LABEL}(?:,{LABEL})*)?\}})? [-+0-9.eEInfNa]+")
VALUE = re.compile(r'(\w+)="((?:[^"\\\n]|\\["\\n])*)"')


def series(pieces: Iterable[str]) -> list[dict[str, str]]:
    """The labels of every series; fails on lines that no scraper would take, and on doubles."""
    lines = [line for line in "".join(pieces).split("\n") if line and not line.startswith("# ")]
    for line in lines:
        assert LINE.fullmatch(line), line
    names = [line.rpartition(" ")[0] for line in lines]
    assert len(set(names)) == len(names)
    plain = {r"\"": '"', r"\\": "\\", r"\n": "\n"}
    return [
        {key: re.sub(r'\\["\\n]', lambda found: plain[found[0]], value) for key, value in VALUE.findall(line)}
        for line in lines
    ]


def test_client_ids_stay_within_their_labels() -> None:
    quotas = ClientQuotas()
    quotas.apply({((CLIENT_ID, None),): {PRODUCER_BYTE_RATE: 1000.0}})
    assert quotas.produce is not None
    for name in HOSTILE:
        quotas.produce.record("ANONYMOUS", name, 1)
    found = series(quota_figures(Page(), quotas, SystemClock()))
    seen = {each["clientId"] for each in found}
    assert seen >= {name for name in HOSTILE if len(name) < 512}
    assert len(seen) == len(HOSTILE)
    assert max(map(len, seen)) <= 512


def test_ever_new_client_ids_make_no_more_series_than_some_thousand() -> None:
    quotas = ClientQuotas()
    quotas.apply({((CLIENT_ID, None),): {PRODUCER_BYTE_RATE: 1000.0}})
    assert quotas.produce is not None
    for number in range(5500):
        quotas.produce.record("ANONYMOUS", f'flood "{number}"', 1)
    quotas.produce.record("ANONYMOUS", "here to stay", 1)
    pieces = list(quota_figures(Page(), quotas, SystemClock()))
    assert 'clientId="here to stay"' in "".join(pieces)
    assert sum(piece.count("\nkafka_server") for piece in pieces) <= 3 * 5000
    assert max(map(len, pieces)) < 100_000


def test_a_quota_remembers_no_more_than_the_beginning_of_a_name() -> None:
    peer: Any = SimpleNamespace(session=Session("10.0.0.7"))
    long = b"\x00\x00\x00\x09\x00\x00\x00\x01\x7f\xff" + b"n" * 32_767
    assert payer_of(peer, memoryview(long)).client_id == "n" * LONGEST_CLIENT_ID
    short = b"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x03app and more"
    assert payer_of(peer, memoryview(short)).client_id == "app"
    none = b"\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff"
    assert payer_of(peer, memoryview(none)).client_id == ""


@pytest.mark.parametrize("character", [b"n", "ü".encode(), "\U0001f600".encode(), b"\xff"])
def test_every_request_of_a_client_with_a_long_name_is_paid_for_by_the_same(character: bytes) -> None:
    peer: Any = SimpleNamespace(session=Session("10.0.0.7"))
    name = character * (32_000 // len(character))
    frame = memoryview(b"\x00\x12\x00\x00\x00\x00\x00\x01" + len(name).to_bytes(2, "big") + name)
    header, _ = parse_request_header(frame)
    paid = RequestContext(peer, 0, 1, header.client_id).payer
    assert paid == payer_of(peer, frame)
    assert len(paid.client_id) == LONGEST_CLIENT_ID


def test_ever_new_software_is_told_of_as_others() -> None:
    flood = Counter({(f'rd"{number}\n', "1", "PLAINTEXT"): 1 for number in range(3000)})
    flood["librdkafka", "2.8.0", "PLAINTEXT"] = 50
    found = series(Page().family(catalog.SOFTWARE, _software_samples(flood)))
    assert len(found) == 201
    assert "librdkafka" in {each["clientSoftwareName"] for each in found}
    assert "other" in {each["clientSoftwareName"] for each in found}


def group_figures(groups: Iterable[str], most: int) -> GroupFigures:
    committed = {name: {"orders": {0: SimpleNamespace(offset=5)}} for name in groups}
    shard = SimpleNamespace(
        offsets=SimpleNamespace(committed=SimpleNamespace(groups=committed)),
        groups=[
            SimpleNamespace(
                group_id=name, state_name="Stable", type=SimpleNamespace(value="classic"), members={}
            )
            for name in committed
        ],
    )
    runtime = SimpleNamespace(shards=[("active", shard)], loads=0, load_ms_total=0.0, load_ms_max=0.0)
    idle = SimpleNamespace(shards=[], loads=0, load_ms_total=0.0, load_ms_max=0.0)
    broker: Any = SimpleNamespace(
        config=SimpleNamespace(int=lambda _: most),
        partitions=SimpleNamespace(by_name={}),
        running_coordinators=SimpleNamespace(
            groups=SimpleNamespace(runtime=runtime), transactions=SimpleNamespace(runtime=idle)
        ),
    )
    return GroupFigures(cast(ObservedBroker, broker))


@pytest.mark.parametrize("openmetrics", [False, True])
def test_names_of_groups_stay_within_their_labels(openmetrics: bool) -> None:
    found = series(group_figures(HOSTILE, 20_000).render(Page(openmetrics=openmetrics)))
    seen = {each["consumergroup"] for each in found if "consumergroup" in each}
    assert seen >= {name for name in HOSTILE if len(name) < 512}
    assert len(seen) == len(HOSTILE)


def test_more_groups_than_may_be_told_of_are_counted() -> None:
    figures = group_figures((f'g"{number}' for number in range(500)), 100)
    text = "".join(figures.render(Page()))
    assert len({each["consumergroup"] for each in series([text]) if "consumergroup" in each}) == 100
    assert re.search(r"^tidelog_consumergroup_series_left_out 400$", text, re.M)
