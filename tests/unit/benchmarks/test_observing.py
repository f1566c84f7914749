"""The benchmark of what counting costs leaves out lines of the broker: they have to be there, each once."""

from __future__ import annotations

import py_compile
from pathlib import Path

import pytest
from benchmarks.observing import LEFT_OUT, BareTidelog

import tidelog


def test_the_bare_broker_is_this_one_without_what_is_measured(tmp_path: Path) -> None:
    BareTidelog(tmp_path).prepare()
    for name, replaced in LEFT_OUT.items():
        copy = tmp_path / "code" / "tidelog" / name
        py_compile.compile(str(copy), cfile=str(tmp_path / "compiled"), doraise=True)
        left = copy.read_text("utf-8")
        assert left != (Path(tidelog.__file__).parent / name).read_text("utf-8")
        assert not [old for old in replaced if old in left]


def test_a_line_that_is_gone_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEFT_OUT, "version.py", {"no such line": ""})
    with pytest.raises(RuntimeError, match=r"version\.py has 'no such line' 0 times, not once"):
        BareTidelog(tmp_path).prepare()
