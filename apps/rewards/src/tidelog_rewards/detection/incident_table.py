"""The table of incidents: a row for each subject, replaced as what is known of it changes.

Written by the driver of a detecting pipeline, which is told of subjects, and of no event.
"""

from __future__ import annotations

from tidelog.spark.sinks.table import ColumnSpec, TableSpec

TABLE = TableSpec(
    "incidents",
    (
        ColumnSpec("incident_id", "string"),
        ColumnSpec("pipeline", "string"),
        ColumnSpec("subject_kind", "string"),
        ColumnSpec("subject", "string"),
        ColumnSpec("state", "string"),
        ColumnSpec("score", "long"),
        ColumnSpec("peak", "long"),
        ColumnSpec("severity", "string"),
        ColumnSpec("opened", "time"),
        ColumnSpec("updated", "time"),
        ColumnSpec("reasons", "string"),
        ColumnSpec("rules_version", "string"),
    ),
    ("incident_id",),
)
