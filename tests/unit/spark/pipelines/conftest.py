"""One Spark session for the tests of the pipelines that run in a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.rigs.pipelines_session import pipelines_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    return pipelines_session()
