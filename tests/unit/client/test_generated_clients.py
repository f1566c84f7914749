"""The synchronous clients are what their asyncio twins say, by scripts/generate_sync_clients.py."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import pytest
from scripts import generate_sync_clients
from scripts.generate_sync_clients import (
    MARK,
    PAIRS,
    GenerationError,
    Pair,
    in_synchronous_words,
    main,
    render,
)

import tidelog.client

CORE = '''
    """A client."""

    from __future__ import annotations

    import contextlib
    from collections.abc import AsyncIterator, Iterable, Sequence
    from typing import TYPE_CHECKING, Self

    from tidelog.client.resources import NewTopic

    if TYPE_CHECKING:
        from tidelog.ids import TopicPartition

    Names = Sequence[str]


    class AsyncAdmin:
        """A client."""

        # -- life

        @classmethod
        def of(cls) -> Self:
            """Another one."""
            return cls()

        @property
        def name(self) -> str:
            """What it is called."""
            return "it"

        async def close(self) -> None:
            """End it."""

        # -- calls

        async def create(self, topic: NewTopic, *names: str, wait_ms: int = 60_000, **more: object) -> Names:
            """Create it; ``async with AsyncAdmin() as admin: await admin.create(…)``."""
            return []

        def note(self, partitions: Iterable[TopicPartition], why: str | None = None) -> None:
            """Take note, on the loop."""

        def look(self) -> int:
            """Look only."""
            return 1

        async def undo(self) -> None:
            """Undo it."""

        @contextlib.asynccontextmanager
        async def attempt(self) -> AsyncIterator[Self]:
            """``async with admin.attempt():`` undoes what fails."""
            await self.create("a")
            try:
                yield self
            except BaseException:
                await self.undo()
                raise

        def _private(self) -> None: ...
'''

FACE = f'''
    """The same without a loop."""

    from __future__ import annotations

    from collections.abc import Callable, Coroutine
    from typing import Any

    from tidelog.client.admin.async_admin import AsyncAdmin


    class Admin:
        """A client."""

        _core: AsyncAdmin

        def close(self) -> None:
            """End it, and the thread."""

        def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any: ...

        def _do(self, action: Callable[..., Any], *args: Any) -> Any: ...

    {MARK}nowhere

        def gone(self) -> None:
            """What the core had once."""
'''


def pair(directory: Path, core: str = CORE, face: str = FACE) -> Pair:
    # The names of the files matter, as imports are made of them; the files themselves are copies.
    paths = {}
    for name, text in (("async_admin.py", core), ("admin.py", face)):
        paths[name] = directory / "src" / "tidelog" / "client" / "admin" / name
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        paths[name].write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
    return Pair(
        "AsyncAdmin",
        paths["async_admin.py"],
        "Admin",
        paths["admin.py"],
        core_only=frozenset({"of", "undo"}),
        any_thread=frozenset({"name", "look"}),
    )


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings = 'line-length = 110\nlint.isort.known-first-party = ["tidelog"]\n'
    (tmp_path / "ruff.toml").write_text(settings, encoding="utf-8")
    monkeypatch.setattr(generate_sync_clients, "ROOT", tmp_path)
    return tmp_path


def rendered(pair: Pair) -> str:
    return render(pair, pair.source.read_text(encoding="utf-8"), pair.target.read_text(encoding="utf-8"))


def test_every_public_method_of_the_core_is_one_of_the_synchronous_client(root: Path) -> None:
    written = rendered(pair(root)).partition(MARK)[2]
    expected = '''
        @property
        def name(self) -> str:
            """What it is called."""
            return self._core.name

        # -- calls

        def create(self, topic: NewTopic, *names: str, wait_ms: int = 60_000, **more: object) -> Names:
            """Create it; ``with Admin() as admin: admin.create(…)``."""
            return self._call(self._core.create(topic, *names, wait_ms=wait_ms, **more))

        def note(self, partitions: Iterable[TopicPartition], why: str | None = None) -> None:
            """Take note, on the loop."""
            self._do(self._core.note, read_here(partitions), why)

        def look(self) -> int:
            """Look only."""
            return self._core.look()

        @contextlib.contextmanager
        def attempt(self) -> Iterator[Self]:
            """``with admin.attempt():`` undoes what fails."""
            self.create("a")
            try:
                yield self
            except BaseException:
                self._call(self._core.undo())
                raise
    '''
    head, _, methods = written.partition("\n\n    # -- life\n")
    assert head == "async_admin.py, down to the end; do not edit."
    assert methods == textwrap.indent(textwrap.dedent(expected), "    ").rstrip(" ")


def test_what_the_methods_need_is_imported_from_where_the_core_has_it(root: Path) -> None:
    by_hand = rendered(pair(root)).partition(MARK)[0]
    expected = """
        from __future__ import annotations

        import contextlib
        from collections.abc import Callable, Coroutine, Iterable, Iterator
        from typing import TYPE_CHECKING, Any, Self

        from tidelog.client._loop_thread import read_here
        from tidelog.client.admin.async_admin import AsyncAdmin, Names
        from tidelog.client.resources import NewTopic

        if TYPE_CHECKING:
            from tidelog.ids import TopicPartition


        class Admin:
    """
    assert textwrap.dedent(expected).lstrip() in by_hand


def test_a_method_that_is_added_to_the_core_appears_where_it_stands_there(root: Path) -> None:
    added = CORE.replace(
        "        def look(self)",
        '        async def describe(self, deep: bool = False) -> dict[str, int]:\n            """Tell."""\n'
        "            return {}\n\n        def look(self)",
    )
    written = rendered(pair(root, added))
    assert "    def describe(self, deep: bool = False) -> dict[str, int]:\n" in written
    assert "        return self._call(self._core.describe(deep))\n" in written
    assert written.index("def note") < written.index("def describe") < written.index("def look")


def test_a_method_that_is_written_by_hand_is_left_alone(root: Path) -> None:
    written = rendered(pair(root))
    assert written.count("def close(self)") == 1
    assert '"""End it, and the thread."""' in written


def test_a_stale_file_fails_the_check_which_names_the_remedy_and_changes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = pair(root)
    before = stale.target.read_text(encoding="utf-8")
    assert main(["--check"], [stale]) == 1
    assert stale.target.read_text(encoding="utf-8") == before
    said = capsys.readouterr().err
    assert "src/tidelog/client/admin/admin.py is not what async_admin.py says: run `make format`" in said


def test_a_file_that_was_written_passes_the_check(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = pair(root)
    assert main([], [written]) == 0
    assert capsys.readouterr().out == "wrote src/tidelog/client/admin/admin.py\n"
    assert main(["--check"], [written]) == 0
    assert main([], [written]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_edit_by_hand_of_what_is_generated_fails_the_check(root: Path) -> None:
    edited = pair(root)
    main([], [edited])
    text = edited.target.read_text(encoding="utf-8")
    edited.target.write_text(text.replace("wait_ms=wait_ms", "wait_ms=0"), encoding="utf-8")
    assert main(["--check"], [edited]) == 1


@pytest.mark.parametrize(
    ("core", "face", "problem"),
    [
        (CORE.replace('"""Look only."""', "pass"), FACE, "AsyncAdmin.look has no docstring"),
        (CORE.replace("def look", "def see"), FACE, "AsyncAdmin has no look: mend PAIRS"),
        (CORE.replace("def name", "def title"), FACE, "AsyncAdmin has no name"),
        (CORE.replace("return []", "yield []"), FACE, "AsyncAdmin.create is nothing that can be generated"),
        (CORE.replace('create("a")', '_private("a")'), FACE, "AsyncAdmin.attempt has 'self._private'"),
        (CORE.replace('create("a")', '_private("a")'), FACE, "use public methods alone"),
        (
            CORE.replace('await self.create("a")', "async with x: pass"),
            FACE,
            "AsyncAdmin.attempt has 'async with",
        ),
        (CORE, FACE.replace("def _do", "def _other"), "AsyncAdmin.note needs Admin._do"),
        (CORE, FACE.replace(MARK, "#"), "admin.py has no line that begins with"),
        (CORE, FACE.replace("class Admin", "class Other"), "class Admin must be the last thing"),
        (CORE.replace("import NewTopic", "import NewTopics"), FACE, "async_admin.py has no NewTopic"),
    ],
)
def test_what_cannot_be_generated_is_refused_with_the_mend(
    root: Path, core: str, face: str, problem: str
) -> None:
    with pytest.raises(GenerationError, match=problem):
        rendered(pair(root, core, face))


@pytest.mark.parametrize("pair", PAIRS, ids=lambda each: each.synchronous)
def test_no_synchronous_client_reaches_into_its_core(pair: Pair) -> None:
    assert re.findall(r"core\._\w+", pair.target.read_text(encoding="utf-8")) == []


def public(owner: type) -> dict[str, object]:
    return {name: member for name, member in vars(owner).items() if not name.startswith("_")}


@pytest.mark.parametrize("pair", PAIRS, ids=lambda each: each.synchronous)
def test_the_synchronous_clients_have_the_methods_parameters_and_docstrings_of_the_asyncio_ones(
    pair: Pair,
) -> None:
    core = public(getattr(tidelog.client, pair.asynchronous))
    face = public(getattr(tidelog.client, pair.synchronous))
    assert core.keys() - pair.core_only <= face.keys()
    assert not pair.core_only & face.keys()
    for name in sorted(core.keys() - pair.core_only):
        ours, theirs = face[name], core[name]
        if isinstance(theirs, property):
            assert isinstance(ours, property), name
            ours, theirs = ours.fget, theirs.fget
        assert callable(ours)
        assert callable(theirs)
        mine, other = inspect.signature(ours), inspect.signature(theirs)
        assert list(mine.parameters.values()) == list(other.parameters.values()), name
        returned = str(other.return_annotation).replace("AsyncIterator", "Iterator")
        assert mine.return_annotation == returned, name
        assert not inspect.iscoroutinefunction(ours), name
        # A synchronous client ends its thread as well, and `send` may wait; their docstrings may say so.
        if name not in ("close", "send", "send_arrow"):
            assert ours.__doc__ == in_synchronous_words(theirs.__doc__ or ""), name
        assert not re.search("async|await", ours.__doc__ or "await"), name
