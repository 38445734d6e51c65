"""A host for a coordinator of groups."""

from odradek.core.groups.config import GroupConfig
from odradek.core.groups.coordinator import GroupCoordinator
from odradek.core.metadata.image import MetadataImage
from tests.core.coordinator import host

TOPIC = "__consumer_offsets"
WALL_MS = host.WALL_MS


class Host(host.Host[GroupCoordinator]):
    topic = TOPIC

    def __init__(
        self, config: GroupConfig | None = None, is_replicated: bool = False, image: MetadataImage | None = None
    ) -> None:
        self.config = config or GroupConfig()
        self.image = MetadataImage() if image is None else image
        self.ids = 0
        super().__init__(is_replicated)

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:032x}"

    def new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, self.new_id, self.high_watermark, self.image)
