"""``tidelog phones``: the keys of the tokens that stand for phone numbers in what the pipelines write."""
