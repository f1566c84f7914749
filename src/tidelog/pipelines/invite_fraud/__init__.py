"""invite-fraud: invitations from one device, address or number block, in bursts, or in rings.

schema       the rules' numbers and points, and what an alert says
transform    invitations → scored alerts per inviter, device and number block, DataFrame → DataFrame
graph        who invited whom: finds circles and chains as invitations come, within bounds
graph_log    keeps the graph across restarts, one file per micro-batch
rings        rings found in the graph → scored alerts
job          ``PIPELINE``: source, sink, checkpoint, backfill
"""
