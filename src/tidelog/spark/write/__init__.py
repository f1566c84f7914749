"""The sink: at-least-once and exactly-once writes from Spark's tasks."""
