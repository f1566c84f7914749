"""The record codec, compiled and interpreted."""

from __future__ import annotations

import pytest
from benchmarks.codec_modules import CodecModules, compiled_file


@pytest.fixture(scope="session", params=["compiled", "interpreted"])
def codec(request: pytest.FixtureRequest) -> CodecModules:
    if request.param == "compiled" and compiled_file("record_reader") is None:
        pytest.skip("the record codec is not compiled in this installation")
    return CodecModules(request.param)
