"""The five pipelines."""
