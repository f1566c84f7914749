"""invite-fraud: invitations from one device, address or number block, in bursts, or in rings.

schema       the rules' numbers and points, and what an alert says
invitations  records → invitations as the rules look at them, and as edges of the graph
scoring      the invitations of one inviter, device or number block in one window → an alert or none
transform    records → windows of invitations → alerts, DataFrame → DataFrame
graph        who invited whom: finds circles and chains as invitations come, within bounds
graph_log    keeps the graph across restarts, one file per micro-batch
rings        rings found in the graph → scored alerts
job          ``PIPELINE``: source, sink, checkpoint, backfill
"""
