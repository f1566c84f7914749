from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.coordinator.transaction.scene import Scene

from tidelog.broker.access.authorization import OPEN
from tidelog.broker.exchange import exchange
from tidelog.broker.exchange.dispatch import Dispatcher
from tidelog.broker.exchange.services import bind
from tidelog.broker.handlers import init_producer_id
from tidelog.broker.network.answer import NO_ANSWER, NotAnswerable
from tidelog.broker.quotas import request_time
from tidelog.broker.quotas.client_quotas import UNLIMITED, ClientQuotas
from tidelog.broker.quotas.payer import Payer
from tidelog.broker.responses import EncodedResponse, refuse_each
from tidelog.broker.served import SERVED
from tidelog.clock import SystemClock
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metrics.request_errors import RequestErrors
from tidelog.replication.append_group import AppendGroup
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.security.session import Session
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.headers import RequestHeader, encode_request, encode_response
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.metadata import MetadataResponse


def frame(key: ApiKey) -> memoryview:
    api = API_TABLE[key]
    return memoryview(encode_request(RequestHeader(int(key), api.max_version, 1, "me"), api.request()))[4:]


def dispatcher_with_one_slot(quotas: ClientQuotas = UNLIMITED) -> Dispatcher:
    services: Any = SimpleNamespace(
        served=SERVED,
        membership=SimpleNamespace(is_informed=True),
        quotas=quotas,
        lane=SlowLane(SystemClock()),
    )
    nobody: Any = SimpleNamespace(handle_frame=lambda *frame: pytest.fail("it is no record"))
    return Dispatcher(services, nobody, nobody, AppendGroup(lambda error: None), slots=1)


def ask(
    dispatcher: Dispatcher, key: ApiKey, handle: Callable[..., object], connection: Any = None
) -> Promise[Any]:
    """The answer to a request that ``handle`` serves, which must not come at once."""
    answer = handled(dispatcher, key, handle, connection)
    assert isinstance(answer, Promise)
    return answer


def handled(
    dispatcher: Dispatcher, key: ApiKey, handle: Callable[..., object], connection: Any = None
) -> object:
    """The outcome of a request that ``handle`` serves."""
    route: Any = SimpleNamespace(api=API_TABLE[key], check=None, handle=handle)
    dispatcher._routes[key] = route
    here = SimpleNamespace(
        closed=False, peer_has_ended=lambda: False, session=Session("127.0.0.1"), producer_ids=()
    )
    return dispatcher.handle(connection or here, frame(key))  # type: ignore[arg-type]


def after(before: Awaitable[object], key: ApiKey) -> Callable[..., object]:
    """A handler that awaits ``before``."""

    async def handle(*_: object) -> object:
        await before
        return API_TABLE[key].response()

    return handle


def test_pushes_of_telemetry_that_wait_for_each_other_keep_nobody_else_waiting() -> None:
    async def body() -> None:
        dispatcher = dispatcher_with_one_slot()
        turn = asyncio.Event()
        key = ApiKey.DESCRIBE_CONFIGS
        pushed = ask(dispatcher, ApiKey.PUSH_TELEMETRY, after(turn.wait(), ApiKey.PUSH_TELEMETRY))
        async with asyncio.timeout(50):
            await ask(dispatcher, key, after(asyncio.sleep(0), key))
            assert not pushed.done
            turn.set()
            await pushed

    asyncio.run(body())


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_producers_that_wait_for_an_id_keep_nobody_else_waiting(transactional_id: str | None) -> None:
    async def body() -> None:
        dispatcher = dispatcher_with_one_slot()
        scene = Scene()
        scene.ids.dry = True
        scene.ids.gate = asyncio.Event()
        services: Any = SimpleNamespace(transactions=scene.coordinator, authorization=OPEN)
        handle = bind(init_producer_id.handle, services)

        def init(context: Any, _: object) -> object:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
            return handle(context, request)

        key = ApiKey.DESCRIBE_CONFIGS
        begun = ask(dispatcher, ApiKey.INIT_PRODUCER_ID, init)
        async with asyncio.timeout(50):
            await ask(dispatcher, key, after(asyncio.sleep(0), key))
            assert not begun.done
            scene.ids.gate.set()
            await begun

    asyncio.run(body())


def test_who_is_answered_because_of_anothers_request_does_not_pay_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(request_time, "perf_counter", lambda: now_s)

    async def body() -> None:
        nonlocal now_s
        quotas = ClientQuotas()
        quotas.apply({(("client-id", None),): {"request_percentage": 100.0}})
        assert quotas.request is not None
        reply: Promise[object] = Promise()
        answer = ask(dispatcher_with_one_slot(quotas), ApiKey.HEARTBEAT, lambda *_: reply)
        quotas.request.begin()
        now_s += 5.0
        reply.resolve(API_TABLE[ApiKey.HEARTBEAT].response())
        quotas.request.end(Payer("", "other"))
        assert answer.done
        assert quotas.request.quota.rate_of("", "me") == 0
        assert quotas.request.quota.rate_of("", "other") > 0

    asyncio.run(body())


LARGE = DescribeGroupsResponse(
    groups=[
        DescribedGroup(
            group_id="g", members=[DescribedGroupMember(member_id="m", member_metadata=b"x" * 900_000)]
        )
    ]
    * 20
)


def test_an_answer_with_few_elements_and_many_bytes_is_written_in_slices_and_parts() -> None:
    async def body() -> None:
        key, version = ApiKey.DESCRIBE_GROUPS, API_TABLE[ApiKey.DESCRIBE_GROUPS].max_version
        promise = ask(dispatcher_with_one_slot(), key, lambda *_: LARGE)
        async with asyncio.timeout(50):
            parts = await promise
        assert max(map(len, parts)) < 3_000_000
        assert b"".join(parts) == encode_response(key, version, 1, LARGE)

    asyncio.run(body())


def test_the_errors_in_a_long_answer_are_counted() -> None:
    unknown = DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    answer = DescribeGroupsResponse(groups=[*LARGE.groups, unknown])

    async def body() -> None:
        dispatcher = dispatcher_with_one_slot()
        dispatcher.exchanges.errors = RequestErrors()
        async with asyncio.timeout(50):
            await ask(dispatcher, ApiKey.DESCRIBE_GROUPS, lambda *_: answer)
        assert dispatcher.exchanges.errors.by_request == {
            "DescribeGroups": {"NONE": 20, "GROUP_ID_NOT_FOUND": 1}
        }

    asyncio.run(body())


@pytest.mark.parametrize("refused", [{}, {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): 2}])
def test_what_an_answer_from_a_cache_refuses_is_counted(refused: dict[int, int]) -> None:
    async def body() -> None:
        dispatcher = dispatcher_with_one_slot()
        dispatcher.exchanges.errors = RequestErrors()
        elements = bytes(3)

        async def handle(*_: object) -> EncodedResponse:
            return EncodedResponse(MetadataResponse(), "topics", 3, elements, refused, 1)

        async with asyncio.timeout(50):
            await ask(dispatcher, ApiKey.METADATA, handle)
        told = {"Metadata": {"NONE": 1, "UNKNOWN_TOPIC_OR_PARTITION": 2}} if refused else {}
        assert dispatcher.exchanges.errors.by_request == told

    asyncio.run(body())


def test_an_answer_that_is_longer_than_any_client_needs_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "MAX_ANSWER_BYTES", 10_000_000)

    async def body() -> None:
        promise = ask(dispatcher_with_one_slot(), ApiKey.DESCRIBE_GROUPS, lambda *_: LARGE)
        with pytest.raises(
            NotAnswerable, match=r"DescribeGroups \(client me\) would be longer than 10000000"
        ):
            async with asyncio.timeout(50):
                await promise

    asyncio.run(body())


@pytest.mark.parametrize(("key", "done"), [(ApiKey.DESCRIBE_CONFIGS, 3), (ApiKey.DELETE_GROUPS, 10)])
def test_nothing_is_looked_up_for_a_client_that_is_gone_and_what_changes_things_is_done(
    key: ApiKey, done: int
) -> None:
    async def body() -> None:
        dispatcher = dispatcher_with_one_slot()
        steps = 0
        ended = asyncio.Event()
        connection = SimpleNamespace(closed=False, peer_has_ended=lambda: steps >= 3)

        def handle(*_: object) -> Generator[None, None, object]:
            nonlocal steps
            try:
                while steps < 10:
                    steps += 1
                    clock_ms[0] += 100
                    yield
                return API_TABLE[key].response()
            finally:
                ended.set()

        clock_ms = [0.0]
        dispatcher.exchanges.lane._now_ms = lambda: clock_ms[0]
        promise = ask(dispatcher, key, handle, connection)
        async with asyncio.timeout(50):
            await ended.wait()
            answer = await promise
        assert steps == done
        assert (answer is NO_ANSWER) is (done < 10)

    asyncio.run(body())


def test_an_answer_is_not_written_for_a_client_that_is_gone() -> None:
    async def body() -> None:
        connection = SimpleNamespace(closed=False, peer_has_ended=lambda: True)
        async with asyncio.timeout(50):
            answer = await ask(
                dispatcher_with_one_slot(), ApiKey.DESCRIBE_GROUPS, lambda *_: LARGE, connection
            )
        assert answer is NO_ANSWER

    asyncio.run(body())


@pytest.mark.parametrize("is_settled", [True, False])
@pytest.mark.parametrize("slices", [0, 2])
def test_a_step_in_slices_may_end_in_a_promise(slices: int, is_settled: bool) -> None:
    async def body() -> None:
        key, version = ApiKey.DESCRIBE_GROUPS, API_TABLE[ApiKey.DESCRIBE_GROUPS].max_version
        reply: Promise[DescribeGroupsResponse] = Promise()

        def handle(*_: object) -> Generator[None, None, Promise[DescribeGroupsResponse]]:
            for number in range(slices):
                clock_ms[0] += 100 * number
                yield
            return reply

        if is_settled:
            reply.resolve(DescribeGroupsResponse())
        dispatcher = dispatcher_with_one_slot()
        clock_ms = [0.0]
        dispatcher.exchanges.lane._now_ms = lambda: clock_ms[0]
        answer: Any = handled(dispatcher, key, handle)
        assert isinstance(answer, Promise) is bool(slices or not is_settled)
        if isinstance(answer, Promise):
            # Its wait needs no slot.
            async with asyncio.timeout(50):
                await ask(dispatcher, key, after(asyncio.sleep(0), key))
            if not is_settled:
                reply.resolve(DescribeGroupsResponse())
            async with asyncio.timeout(50):
                answer = await answer
        assert answer == encode_response(key, version, 1, DescribeGroupsResponse())

    asyncio.run(body())


@pytest.mark.parametrize("count", [10, 2000])
@pytest.mark.parametrize("how", ["at once", "in work", "by a promise"])
def test_a_long_request_is_refused_in_a_thread(how: str, count: int) -> None:
    key, version = ApiKey.DELETE_GROUPS, API_TABLE[ApiKey.DELETE_GROUPS].max_version
    request = DeleteGroupsRequest(groups_names=["g"] * count)
    error = KafkaError(ErrorCode.INVALID_GROUP_ID)
    threads: list[threading.Thread] = []

    def work() -> Generator[None, None, object]:
        yield
        raise error

    def handle(*_: object) -> object:
        if how == "at once":
            raise error
        return work() if how == "in work" else Promise.failed(error)

    def refuse(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
        threads.append(threading.current_thread())
        return refuse_each(DeleteGroupsResponse, request, error)

    async def body() -> None:
        dispatcher = dispatcher_with_one_slot()
        route: Any = SimpleNamespace(api=API_TABLE[key], check=None, handle=handle, refuse=refuse)
        dispatcher._routes[key] = route
        header = RequestHeader(int(key), version, 1, "me")
        connection: Any = SimpleNamespace(closed=False, peer_has_ended=lambda: False)
        answer = dispatcher.handle(connection, memoryview(encode_request(header, request))[4:])
        if isinstance(answer, Promise):
            async with asyncio.timeout(50):
                answer = await answer
        parts = [answer] if isinstance(answer, bytes) else answer
        expected = encode_response(key, version, 1, refuse_each(DeleteGroupsResponse, request, error))
        assert b"".join(parts) == expected  # type: ignore[arg-type]
        assert [each is threading.main_thread() for each in threads] == [count == 10]

    asyncio.run(body())
