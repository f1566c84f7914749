"""The shared truth: the znode-shaped store, and the image that the broker reads it through."""
