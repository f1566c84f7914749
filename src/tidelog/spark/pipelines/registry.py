"""The installed pipelines by name, found through the entry points of the group ``tidelog.pipelines``.

Specifications are loaded, their implementations are not: listing pipelines loads no Spark. Called by the
command line, the console and Spark's Python workers.
"""

from __future__ import annotations

import functools
from difflib import get_close_matches

from tidelog import extensions
from tidelog.errors import TidelogError
from tidelog.spark.pipelines.pipeline import Pipeline

NONE_INSTALLED = "no pipelines are installed: `pip install tidelog-rewards` brings five"


class UnknownPipelineError(TidelogError):
    """There is no pipeline of that name."""


@functools.cache
def installed() -> dict[str, Pipeline]:
    """The pipelines of all installed packages, in their packages' order."""
    found: dict[str, Pipeline] = {}
    for named in extensions.loaded(extensions.PIPELINES, (Pipeline, tuple)).values():
        for pipeline in (named,) if isinstance(named, Pipeline) else named:
            found.setdefault(pipeline.name, pipeline)
    return found


def load(name: str) -> Pipeline:
    """The pipeline of that name."""
    pipelines = installed()
    if name not in pipelines:
        raise UnknownPipelineError(f"there is no pipeline {name}: {hint(name)}")
    return pipelines[name]


def hint(name: str) -> str:
    """The nearest name, or all names."""
    pipelines = installed()
    if not pipelines:
        return NONE_INSTALLED
    near = get_close_matches(name, pipelines, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(pipelines)}"
