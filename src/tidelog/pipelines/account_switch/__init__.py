"""account-switch: the same device changing accounts again and again.

schema      the rule's numbers, and what an alert says
transform   logins → alerts, DataFrame → DataFrame
job         ``PIPELINE``: source, sink, checkpoint, backfill
"""
