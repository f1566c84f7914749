"""invite-fraud: invitations from one device, address or number block, in bursts, or in rings.

schema       the rules' numbers and points, and what an alert says
invitations  parsed events → invitations as the rules look at them
scoring      the invitations of one inviter, device or number block in one window → an alert or none
graph        who invited whom: finds circles and chains as invitations come, within bounds
rings        rings found in the graph → scored alerts
detector     what tasks remember of invitations, and what a batch of them reports
job          ``PIPELINE``: source, sink, checkpoint, backfill
"""
