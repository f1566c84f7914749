"""The type variables of the generic clients: ``Consumer[K, V]``, ``Producer[K, V]``.

Type checkers infer those of a client from the constructor's (de)serializers; without one they are ``bytes``.
Those of a record are ``Any`` where a program does not name them. The defaults (PEP 696) exist for type
checkers only: the running program needs no ``typing_extensions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
    K_co = TypeVar("K_co", covariant=True, default=bytes)
    V_co = TypeVar("V_co", covariant=True, default=bytes)
    RecordK_co = TypeVar("RecordK_co", covariant=True, default=Any)
    RecordV_co = TypeVar("RecordV_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
    K_co = TypeVar("K_co", covariant=True)
    V_co = TypeVar("V_co", covariant=True)
    RecordK_co = TypeVar("RecordK_co", covariant=True)
    RecordV_co = TypeVar("RecordV_co", covariant=True)
