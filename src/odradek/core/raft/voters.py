"""Who votes in the metadata quorum: node ids, the ids of their folders, and where their controller listeners are.

With kraft.version 1 the voters stand in the log and in snapshots; with 0 only in `controller.quorum.voters`, and nobody knows
the ids of their folders: there a voter is known by its node id alone.

Invariants
 1. A set has a node id once.
 2. No set is empty: the last voter is never taken out.
"""

import re
from typing import Final, NamedTuple, TypeAlias

import msgspec

from odradek.wire.ids import id_bytes
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import VotersRecord

KRAFT_VERSION_MIN: Final = 0
KRAFT_VERSION_MAX: Final = 1

_VOTER: Final = re.compile(r"([0-9]+)@(?:\[([^\]]+)\]|([^:\[\]]+)):([0-9]+)(?::([A-Za-z0-9_-]{22}))?")


Endpoints: TypeAlias = tuple[tuple[str, str, int], ...]  # listener, host, port


class ReplicaKey(NamedTuple):
    """Who a replica is: a node with another folder is another replica."""

    id: int
    directory_id: bytes = NIL_UUID


class Voter(msgspec.Struct, frozen=True):
    id: int
    directory_id: bytes = NIL_UUID
    endpoints: Endpoints = ()
    kraft_version_min: int = KRAFT_VERSION_MIN
    kraft_version_max: int = KRAFT_VERSION_MAX

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    def matches(self, key: ReplicaKey) -> bool:
        """Whether the replica is this voter. One whose folder is not known is known by its node id alone."""
        return self.id == key.id and self.directory_id in (NIL_UUID, key.directory_id)


class VoterSet(msgspec.Struct, frozen=True):
    voters: tuple[Voter, ...]

    @property
    def ids(self) -> list[int]:
        return [voter.id for voter in self.voters]

    def find(self, node_id: int) -> Voter | None:
        return next((voter for voter in self.voters if voter.id == node_id), None)

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self.find(key.id)
        return voter is not None and voter.matches(key)

    def endpoints_of(self, node_id: int) -> Endpoints:
        voter = self.find(node_id)
        return () if voter is None else voter.endpoints

    def with_added(self, added: Voter) -> "VoterSet":
        assert self.find(added.id) is None
        return VoterSet((*self.voters, added))

    def without(self, key: ReplicaKey) -> "VoterSet | None":
        """The same without one voter; None where it is not in the set, or is the only one."""
        left = tuple(voter for voter in self.voters if voter.key != key)
        return VoterSet(left) if 0 < len(left) < len(self.voters) else None

    def with_voter(self, changed: Voter) -> "VoterSet":
        """The same with another entry of one voter."""
        return VoterSet(tuple(changed if voter.id == changed.id else voter for voter in self.voters))

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                VotersRecord.Voter(
                    voter_id=voter.id,
                    voter_directory_id=voter.directory_id,
                    endpoints=[VotersRecord.Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints],
                    kraft_version_feature=VotersRecord.KRaftVersionFeature(
                        min_supported_version=voter.kraft_version_min, max_supported_version=voter.kraft_version_max
                    ),
                )
                for voter in self.voters
            ],
        )

    @classmethod
    def of(cls, record: VotersRecord) -> "VoterSet":
        return cls(
            tuple(
                Voter(
                    voter.voter_id,
                    voter.voter_directory_id,
                    tuple((point.name, point.host, point.port) for point in voter.endpoints),
                    voter.kraft_version_feature.min_supported_version,
                    voter.kraft_version_feature.max_supported_version,
                )
                for voter in record.voters
            )
        )


def parse_voters(text: str, listener: str) -> VoterSet:
    """The voters of `controller.quorum.voters`: 1@host:9093,2@[::1]:9093; each at its listener of that name."""
    return _parse(text, listener, "controller.quorum.voters", "id@host:port", has_directory=False)


def parse_initial_voters(text: str, listener: str) -> VoterSet:
    """The first voters of a cluster, with the ids of their folders: 1@host:9093:JEXY6aqzQY-32P5TStzaFg."""
    voters = _parse(text, listener, "the initial controllers", "id@host:port:directory", has_directory=True)
    if not voters.voters:
        raise ValueError("the initial controllers are none: name at least one")
    if len(set(voters.ids)) < len(voters.ids) or len({voter.directory_id for voter in voters.voters}) < len(voters.ids):
        raise ValueError("the initial controllers name an id or a directory twice")
    return voters


def _parse(text: str, listener: str, what: str, form: str, *, has_directory: bool) -> VoterSet:
    voters = []
    for part in filter(None, map(str.strip, text.split(","))):
        match = _VOTER.fullmatch(part)
        if match is None or bool(match[5]) != has_directory:
            raise ValueError(f"{what}: {part!r} is no voter, write each as {form}")
        directory_id = id_bytes(match[5]) if has_directory else NIL_UUID
        voters.append(Voter(int(match[1]), directory_id, ((listener, match[2] or match[3], int(match[4])),)))
    return VoterSet(tuple(voters))
