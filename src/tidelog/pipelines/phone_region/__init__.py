"""phone-region: where the user of a phone number is, added to the events that carry one.

numbers      a number as it stands in an event → region, carrier, kind, or why it is none (no Spark)
schema       the fields of the result, the table ``user_regions``
transform    events → enriched events → records and table rows, DataFrame → DataFrame
job          ``PIPELINE``: sources, sinks, checkpoint
"""
