"""phone-region: where the user of a phone number is, added to the events that carry one.

numbers      a number as it stands in an event → region, carrier, kind, or why it is none (no Spark)
schema       the fields of the result, the table ``user_regions``
enriching    records → enriched events and users' numbers, Arrow → Arrow
task_work    what the tasks of a batch do with them
job          ``PIPELINE``: sources, sinks, checkpoint
"""
