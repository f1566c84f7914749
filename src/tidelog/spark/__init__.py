"""The Spark data source ``tidelog``: Kafka's connector options, decoded straight into Arrow, with no jar."""

from tidelog.spark.runtime.interpreter import use_this_python

__all__ = ["use_this_python"]
