"""account-switch: the same device changing accounts again and again.

schema      the rule's numbers, and what an alert says
scoring     the logins of one device in one window → an alert or none
transform   logins → windows of logins → alerts, DataFrame → DataFrame
job         ``PIPELINE``: source, sink, checkpoint, backfill
"""
