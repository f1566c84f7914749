"""Random operations on a store against a dictionary that does the same, with restarts in between."""

from __future__ import annotations

import asyncio
import copy
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Set,
    StoreError,
    parent_of,
)

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
DATA = st.binary(max_size=8)
VERSIONS = st.one_of(st.just(ANY_VERSION), st.integers(0, 3))
OPS = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans(), st.booleans()),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
)


class _Node:
    def __init__(self, data: bytes, ephemeral: bool) -> None:
        self.data, self.ephemeral, self.version = data, ephemeral, 0


class _Model:
    """The store's rules, said as plainly as possible."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Node] = {}

    def _has_children(self, path: str) -> bool:
        return any(parent_of(other) == path for other in self.nodes)

    def refusal(self, op: Op) -> type[StoreError] | None:
        if isinstance(op, Create):
            parent = parent_of(op.path)
            if parent != "/" and parent not in self.nodes:
                return NoNode
            if parent != "/" and self.nodes[parent].ephemeral:
                return NoChildrenForEphemerals
            return NodeExists if not op.sequential and op.path in self.nodes else None
        node = self.nodes.get(op.path)
        if node is None:
            return NoNode
        assert isinstance(op, Set | Delete)
        if op.version not in (ANY_VERSION, node.version):
            return BadVersion
        return NotEmpty if isinstance(op, Delete) and self._has_children(op.path) else None

    def do(self, op: Op, created: str | None) -> None:
        if isinstance(op, Create):
            assert created is not None
            assert created not in self.nodes
            self.nodes[created] = _Node(op.data, op.ephemeral)
        elif isinstance(op, Set):
            self.nodes[op.path].data = op.data
            self.nodes[op.path].version += 1
        else:
            del self.nodes[op.path]

    def restart(self) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if not node.ephemeral}


class StoreMachine(RuleBasedStateMachine):
    @initialize(limit=st.sampled_from([64, 512, 1 << 20]))
    def start(self, limit: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="tidelog-store-"))
        self.loop = asyncio.new_event_loop()
        self.limit = limit
        self.model = _Model()
        self.store = self._open()

    def _open(self) -> EmbeddedStore:
        return EmbeddedStore(self.directory, journal_limit_bytes=self.limit, sync=lambda fd: None)

    @rule(op=OPS)
    def one(self, op: Op) -> None:
        refused = self.model.refusal(op)
        try:
            [result] = self.loop.run_until_complete(self.store.multi([op]))
        except StoreError as error:
            outcome: type[StoreError] | None = type(error)
        else:
            outcome = None
            self.model.do(op, result if isinstance(result, str) else None)
        assert outcome is refused

    @rule(ops=st.lists(OPS, max_size=5))
    def many(self, ops: list[Op]) -> None:
        try:
            results = self.loop.run_until_complete(self.store.multi(ops))
        except StoreError as error:
            self._the_model_refuses_there_too(ops, error)
        else:
            for op, result in zip(ops, results, strict=True):
                assert self.model.refusal(op) is None
                self.model.do(op, result if isinstance(result, str) else None)

    def _the_model_refuses_there_too(self, ops: list[Op], error: StoreError) -> None:
        assert error.op_index is not None
        trial = copy.deepcopy(self.model)
        for index, op in enumerate(ops[: error.op_index]):
            assert trial.refusal(op) is None
            # The store has told nobody which number it would have given: any unused name does here.
            name = f"{op.path}#{index}" if isinstance(op, Create) and op.sequential else op.path
            trial.do(op, name)
        assert type(error) is trial.refusal(ops[error.op_index])

    @rule()
    @precondition(lambda self: hasattr(self, "store"))
    def restart(self) -> None:
        self.loop.run_until_complete(self.store.close())
        self.store = self._open()
        self.model.restart()

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "store"):
            return
        found: dict[str, tuple[bytes, int]] = {}

        async def read(path: str) -> None:
            for name in await self.store.children(path):
                child = f"{path.rstrip('/')}/{name}"
                found[child] = await self.store.get(child)
                await read(child)

        self.loop.run_until_complete(read("/"))
        assert found == {path: (node.data, node.version) for path, node in self.model.nodes.items()}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.loop.run_until_complete(self.store.close())
            self.loop.close()
            shutil.rmtree(self.directory)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
