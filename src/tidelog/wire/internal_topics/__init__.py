"""The records in Kafka's internal topics, generated from its specifications; see ``stored_record``."""
