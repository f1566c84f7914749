"""Five data pipelines for a rewards app, on Tidelog and Spark."""
