"""What is told on the loop wakes a thread that waits beside it."""

from __future__ import annotations

import threading

from tidelog.client.consumer._wake_flag import WakeFlag


def test_a_thread_is_woken_by_what_is_told_after_it_began_to_expect_something() -> None:
    news = WakeFlag()
    woken = threading.Event()
    expecting = threading.Event()

    def wait() -> None:
        news.expect()
        expecting.set()
        news.wait_in_thread(20)
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        assert expecting.wait(20)
        news.tell()
        assert woken.wait(10)
    finally:
        thread.join(30)


def test_what_is_told_between_expecting_and_waiting_is_not_missed() -> None:
    news = WakeFlag()
    news.expect()
    news.tell()
    news.wait_in_thread(3600)
