"""All APIs by key: their classes, the versions that can be coded, those that a node advertises, and which header each has.

Invariants
 1. `advertised` is what Apache Kafka 4.3.1 advertises, and no more, whatever else the codecs know.
 2. The answer to ApiVersions has header 0 in every version: who asks does not know yet which versions we have.
"""

from functools import cached_property
from typing import Final

from msgspec import Struct

from odradek.wire.message import Message
from odradek.wire.messages import message_class
from odradek.wire.table import blocks, names, parse_head

API_VERSIONS: Final = 18


class Api(Struct, frozen=True, dict=True):
    """One API. Empty `advertised`: no node says that it has it."""

    key: int
    name: str
    versions: range
    flexible: range
    listeners: frozenset[str]  # of "broker" and "controller"
    advertised: range

    @cached_property
    def served(self) -> range:
        """The versions that a node answers: advertised, and known to the codecs."""
        return range(max(self.advertised.start, self.versions.start), min(self.advertised.stop, self.versions.stop))

    @cached_property
    def request(self) -> type[Message]:
        return message_class(f"{self.name}Request")

    @cached_property
    def response(self) -> type[Message]:
        return message_class(f"{self.name}Response")

    def request_header_version(self, version: int) -> int:
        return 2 if version in self.flexible else 1

    def response_header_version(self, version: int) -> int:
        return 1 if version in self.flexible and self.key != API_VERSIONS else 0


def read_apis() -> dict[int, Api]:
    found = {}
    for name in names("request"):
        head = parse_head(blocks()[name].partition("\n")[0])
        found[head.key] = Api(
            key=head.key,
            name=name.removesuffix("Request"),
            versions=head.versions,
            flexible=head.flexible,
            listeners=head.listeners,
            advertised=head.advertised,
        )
    return found


APIS: Final = read_apis()  # by key
