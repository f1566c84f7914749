"""invite-fraud: invitations that come from one hand: by device, number block, burst, ring, chain or tree.

schema       the numbers of the rules, and what an alert says
invitations  parsed events → invitations as the rules look at them
scoring      the invitations of one inviter, device or number block → what they come to, hour by hour
graph        who invited whom: circles, chains on few devices and trees in one network around somebody
suspects     who of many people these searches are worth, found out in bulk
rings        what these come to, hour by hour
detector     what tasks remember of invitations, and who is judged by a batch of them
job          ``PIPELINE``: source, sink, checkpoint, backfill
"""
