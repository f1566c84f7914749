"""The topics of the cluster as consumer groups see them: those that can be read and have an id.

A topic on its way out is gone already, as it is in Kafka; a topic without an id, left by a very old cluster,
cannot be assigned by this protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidelog.ids import ZERO_UUID, Uuid
from tidelog.metadata.image import MetadataImage, TopicImage


class TopicView:
    """Look-ups in the image."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image

    def get(self, name: str) -> TopicImage | None:
        """A topic by name."""
        topic = self.image.topics.get(name)
        return topic if topic is not None and self._is_there(topic) else None

    def by_id(self, topic_id: Uuid) -> TopicImage | None:
        """A topic by id."""
        topic = self.image.topic_by_id.get(topic_id)
        return topic if topic is not None and self._is_there(topic) else None

    def names(self) -> Iterator[str]:
        """All topics."""
        return (name for name, topic in self.image.topics.items() if self._is_there(topic))

    def ids(self, names: Iterable[str]) -> frozenset[Uuid]:
        """The ids of those topics that exist."""
        return frozenset(topic.id for name in names if (topic := self.get(name)) is not None)

    def _is_there(self, topic: TopicImage) -> bool:
        return topic.id != ZERO_UUID and topic.name not in self.image.deleting
