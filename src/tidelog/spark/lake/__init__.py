"""The lake as Apache Iceberg tables: catalog, commits that count once, and upkeep; needs no Spark."""
