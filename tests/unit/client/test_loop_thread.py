from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest

from tidelog.client._loop_thread import LoopThread
from tidelog.client.errors import ClientClosedError, RequestTimeoutError


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("a client")
    yield thread
    thread.close()


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_coroutine_runs_on_the_thread_and_its_result_or_error_comes_back(thread: LoopThread) -> None:
    async def where() -> str:
        return threading.current_thread().name

    async def fails() -> None:
        raise ValueError("as it should")

    assert thread.call(where()) == "a client"
    with pytest.raises(ValueError, match="as it should"):
        thread.call(fails())


def test_a_call_that_takes_too_long_is_cancelled_and_says_what_was_waited_for(thread: LoopThread) -> None:
    cancelled = threading.Event()

    async def endless() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    with pytest.raises(RequestTimeoutError, match=r"the flush has not ended within 0\.01 s"):
        thread.call(endless(), 0.01, "the flush")
    assert cancelled.wait(10)


def test_a_call_without_a_name_is_called_as_its_coroutine_is(thread: LoopThread) -> None:
    async def describe_cluster() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RequestTimeoutError, match=r"describe_cluster has not ended within 0\.01 s"):
        thread.call(describe_cluster(), 0.01)


def test_a_timeout_of_the_coroutine_itself_is_told_apart_from_that_of_the_call(thread: LoopThread) -> None:
    async def own() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        thread.call(own(), 10)


def test_a_callback_that_waits_for_its_own_client_is_refused_instead_of_hanging(thread: LoopThread) -> None:
    async def nothing() -> None: ...

    async def from_inside() -> None:
        thread.call(nothing())

    with pytest.raises(ClientClosedError, match="waits for a client itself"):
        thread.call(from_inside())


def test_closing_cancels_what_runs_and_ends_every_call_with_an_error(thread: LoopThread) -> None:
    begun = threading.Event()
    problems: list[Exception] = []

    async def endless() -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    def wait() -> None:
        try:
            thread.call(endless(), what="poll")
        except ClientClosedError as error:
            problems.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert begun.wait(10)
    thread.close()
    waiter.join(10)
    assert "closed while poll was waited for" in str(problems[0])


def test_a_closed_thread_refuses_and_closing_again_is_no_harm(thread: LoopThread) -> None:
    async def nothing() -> None: ...

    thread.close()
    thread.close()
    with pytest.raises(ClientClosedError, match="a client is closed"):
        thread.call(nothing())
    with pytest.raises(ClientClosedError, match="a client is closed"):
        thread.call_soon(print)


def test_a_program_that_closes_nothing_ends_and_runs_what_remains_to_be_done() -> None:
    done = run_program("""
        from tidelog.client._loop_thread import LoopThread

        async def flush():
            print("flushed")

        first, second = LoopThread("first", at_exit=flush), LoopThread("second")
        async def value():
            return 7
        print(first.call(value()))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\nflushed\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_gets_an_error_that_says_so_and_the_parent_goes_on() -> None:
    done = run_program("""
        import os, sys
        from tidelog.client.errors import ClientClosedError
        from tidelog.client._loop_thread import LoopThread

        thread = LoopThread("a producer")
        async def value():
            return 7
        child = os.fork()
        if child == 0:
            try:
                thread.call(value())
            except ClientClosedError as error:
                print("child:", error, flush=True)
            sys.exit(3)
        _, status = os.waitpid(child, 0)
        print("status", os.waitstatus_to_exitcode(status))
        print("parent:", thread.call(value()))
    """)
    assert done.returncode == 0, done.stderr
    assert "child: a producer was made before this process was forked" in done.stdout
    assert done.stdout.endswith("status 3\nparent: 7\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_client_hears_of_a_fork_in_the_child_alone() -> None:
    done = run_program("""
        import os
        from tidelog.client._loop_thread import LoopThread

        heard = []
        thread = LoopThread("a producer", on_fork=heard.append)
        child = os.fork()
        if child == 0:
            print("child:", *heard, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print("parent:", *heard)
    """)
    assert done.returncode == 0, done.stderr
    child, parent = done.stdout.splitlines()
    assert child.startswith("child: a producer was made before this process was forked")
    assert parent == "parent:"
