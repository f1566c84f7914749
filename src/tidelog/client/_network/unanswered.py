"""Keys that are asked for at several brokers at once, and brokers that do not answer.

``client._network.leaders`` and ``client._network.coordinators`` send one request to each broker and look
again for the broker that serves what was not answered; ``admin._log_dirs`` and
``admin._config_changes`` ask brokers about themselves. One broker that is dead takes nothing from the
answers of the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Generic, TypeVar

from tidelog.client.errors import NO_ANSWER, ClientError, RequestTimeoutError
from tidelog.errors import ErrorCode, KafkaError

KeyT = TypeVar("KeyT")
T = TypeVar("T")


class Unanswered(Generic[KeyT]):
    """Why there was no answer, by key."""

    def __init__(self) -> None:
        self._errors: dict[KeyT, ClientError] = {}

    async def answer(self, ask: Callable[[], Awaitable[T]], keys: Collection[KeyT]) -> T | None:
        """What ``ask`` learns about ``keys``; None, with the reason noted, where the broker says nothing."""
        try:
            return await ask()
        except NO_ANSWER as error:
            # When time is up, an earlier reason says more than "timed out".
            if isinstance(error, RequestTimeoutError):
                self._errors = dict.fromkeys(keys, error) | self._errors
            else:
                self._errors |= dict.fromkeys(keys, error)
            return None

    def filled_in(
        self,
        results: Mapping[KeyT, T],
        keys: Iterable[KeyT],
        refuse: Callable[[KeyT, KafkaError], T],
        who: Callable[[KeyT], str],
    ) -> dict[KeyT, T]:
        """The results of all keys; of one without an answer what ``refuse`` makes of the reason.

        Where nobody has answered at all, what kept a broker from it is raised. ``who`` names whoever should
        have answered for a key.
        """
        if not results:
            for error in self._errors.values():
                raise error
        return {
            key: results[key] if key in results else refuse(key, self._error(key, who(key))) for key in keys
        }

    def _error(self, key: KeyT, who: str) -> KafkaError:
        error = self._errors.get(key)
        if error is None:
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{who} has not answered for it")
        return as_outcome(error)


def as_outcome(error: KafkaError | ClientError) -> KafkaError:
    """What has kept a broker from answering, as the error of one part of a call's answer."""
    if isinstance(error, KafkaError):
        return error
    timed_out = isinstance(error, RequestTimeoutError)
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.NETWORK_EXCEPTION, str(error))
