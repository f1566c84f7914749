"""account-switch: many accounts in one hand: on one device, or on devices that change their names.

schema      the numbers of the rules, and what an alert says
scoring     the logins of one device or address → what they come to, hour by hour
detector    what tasks remember of logins, and who is judged by a batch of them
job         ``PIPELINE``: source, sink, checkpoint, backfill
"""
