"""account-switch: the same device changing accounts again and again.

schema      the rule's numbers, and what an alert says
scoring     the logins of one device in one window → an alert or none
detector    what tasks remember of logins, and what a batch of them reports
job         ``PIPELINE``: source, sink, checkpoint, backfill
"""
