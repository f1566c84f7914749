"""The nodes of the embedded store in memory, and how operations become effects on them.

An *effect* is an operation whose outcome is settled: the sequential name is chosen, the version is known.
:meth:`NodeTree.plan` turns operations into effects or refuses them all; :meth:`NodeTree.apply` carries
effects out and cannot fail. The journal holds effects, so a restart applies exactly what was applied live.

Only ``embedded`` uses this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from tidelog.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Result,
    Set,
    StoreError,
    check_path,
    parent_of,
)


class Node(msgspec.Struct, array_like=True, gc=False):
    """One node; nested, so that a snapshot is one value that msgspec decodes whole."""

    data: bytes
    version: int = 0
    created: int = 0
    """How many children were ever created here: the next sequential number."""
    children: dict[str, Node] = {}
    ephemeral: bool = False


class Effect(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A settled change: create (``order`` is set), replace (only ``data`` is) or delete (neither is)."""

    path: str
    data: bytes | None
    version: int = 0
    order: int = -1
    """The number that the parent gives its new child, sequential or not."""
    ephemeral: bool = False
    """Whether the node it is about is ephemeral: then the effect is never written down."""


class NodeTree:
    """A root node and everything below it."""

    def __init__(self, root: Node | None = None) -> None:
        self.root = root if root is not None else Node(b"")

    def find(self, path: str) -> Node | None:
        """The node at ``path``, or None."""
        node = self.root
        if path != "/":
            for name in path[1:].split("/"):
                child = node.children.get(name)
                if child is None:
                    return None
                node = child
        return node

    def apply(self, effects: Sequence[Effect]) -> None:
        """Carry out effects that were planned on this tree as it is."""
        for effect in effects:
            self._apply_one(effect)

    def plan(self, ops: Sequence[Op]) -> tuple[list[Effect], list[Result]]:
        """The effects and results of ``ops`` in order; raises on the first bad one. The tree stays as it is.

        Later operations see earlier ones, so they are carried out here and taken back.
        """
        effects: list[Effect] = []
        results: list[Result] = []
        undo: list[Callable[[], None]] = []
        try:
            for index, op in enumerate(ops):
                try:
                    effect, result = self._settle(op)
                except StoreError as error:
                    error.op_index = index
                    raise
                results.append(result)
                if effect is not None:
                    undo.append(self._apply_one(effect))
                    effects.append(effect)
        finally:
            for take_back in reversed(undo):
                take_back()
        return effects, results

    def _settle(self, op: Op) -> tuple[Effect | None, Result]:
        check_path(op.path)
        match op:
            case Create():
                path, order = self._place_for(op)
                return Effect(path, op.data, 0, order, op.ephemeral), path
            case Set():
                node = self._existing(op.path, op.version)
                version = node.version + 1
                return Effect(op.path, op.data, version, ephemeral=node.ephemeral), version
            case Delete():
                node = self._existing(op.path, op.version)
                if op.path == "/":
                    raise StoreError("/", "the root of the metadata tree cannot be deleted")
                if node.children:
                    raise NotEmpty(op.path)
                return Effect(op.path, None, ephemeral=node.ephemeral), None
            case Check():
                self._existing(op.path, op.version)
                return None, None

    def _place_for(self, op: Create) -> tuple[str, int]:
        """The path and the number that a new node gets; raises where it cannot be."""
        if op.path == "/":
            raise NodeExists("/")
        parent_path = parent_of(op.path)
        parent = self.find(parent_path)
        if parent is None:
            raise NoNode(parent_path)
        if parent.ephemeral:
            raise NoChildrenForEphemerals(parent_path)
        path = f"{op.path}{parent.created:010d}" if op.sequential else op.path
        if path[path.rindex("/") + 1 :] in parent.children:
            raise NodeExists(path)
        return path, parent.created

    def _existing(self, path: str, version: int) -> Node:
        node = self.find(path)
        if node is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path, version, node.version)
        return node

    def _apply_one(self, effect: Effect) -> Callable[[], None]:
        """Carry out one effect and return how to take it back."""
        if effect.path == "/":
            return self._replace(self.root, effect)
        parent = self.find(parent_of(effect.path))
        if parent is None:
            raise NoNode(parent_of(effect.path))
        name = effect.path[effect.path.rindex("/") + 1 :]
        if effect.data is None:
            gone = parent.children.pop(name)
            return lambda: parent.children.__setitem__(name, gone)
        if effect.order < 0:
            return self._replace(parent.children[name], effect)
        before = parent.created
        parent.children[name] = Node(effect.data, effect.version, 0, {}, effect.ephemeral)
        parent.created = effect.order + 1

        def remove() -> None:
            del parent.children[name]
            parent.created = before

        return remove

    @staticmethod
    def _replace(node: Node, effect: Effect) -> Callable[[], None]:
        assert effect.data is not None
        before = node.data, node.version
        node.data, node.version = effect.data, effect.version

        def restore() -> None:
            node.data, node.version = before

        return restore

    def ephemeral_paths(self) -> list[str]:
        """Every ephemeral node."""
        return [path for path, node in self.walk() if node.ephemeral]

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Every node below the root with its path, parents first."""
        waiting: list[tuple[str, Node]] = [("", self.root)]
        while waiting:
            prefix, node = waiting.pop()
            for name, child in node.children.items():
                path = f"{prefix}/{name}"
                yield path, child
                if child.children:
                    waiting.append((path, child))
