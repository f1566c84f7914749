"""The Spark data source ``tidelog``: Kafka's connector options, decoded straight into Arrow, with no jar."""
