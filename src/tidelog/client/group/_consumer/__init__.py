"""The consumer group protocol (KIP-848): the broker assigns, members follow by heartbeats.

consumer_membership    what the consumer calls
consumer_member        ConsumerGroupHeartbeat and the state of the member
topic_names            names of the topic ids in an assignment
"""
