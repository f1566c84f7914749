"""Tidelog against Apache Kafka on the same machine in the same minutes: `python -m benchmarks --help`."""
