"""The framework that runs pipelines: their specification, registry, session, runner and status."""
