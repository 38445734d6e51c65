"""What a voter must not forget: its epoch, whom it voted for, and who leads. It stands in `quorum-state`, a line of JSON.

Version 0 is that of kraft.version 0, which knows no folders' ids; version 1 that of kraft.version 1.

Invariants
 1. What was written is read again, of both versions; but version 0 knows no folder of whom was voted for.
"""

import json
from typing import Any, Final

import msgspec

from odradek.wire.ids import id_bytes, id_text
from odradek.wire.message import NIL_UUID

QUORUM_STATE: Final = "quorum-state"
NOBODY: Final = -1


class CorruptElection(Exception):
    """quorum-state says something that no node has written."""


class Election(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    voted_directory_id: bytes = NIL_UUID

    def to_json(self, kraft_version: int, voter_ids: list[int]) -> bytes:
        fields: dict[str, Any]
        if kraft_version == 0:
            fields = {
                "clusterId": "",
                "leaderId": self.leader_id,
                "leaderEpoch": self.epoch,
                "votedId": self.voted_id,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": voter} for voter in voter_ids],
                "data_version": 0,
            }
        else:
            fields = {
                "leaderId": self.leader_id,
                "leaderEpoch": self.epoch,
                "votedId": self.voted_id,
                "votedDirectoryId": id_text(self.voted_directory_id),
                "data_version": 1,
            }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def of(cls, content: bytes) -> "Election":
        try:
            fields = json.loads(content.decode())
            version = fields["data_version"]
            if version not in (0, 1):
                raise CorruptElection(f"{QUORUM_STATE} has data_version {version}, where 0 and 1 are known")
            directory = fields["votedDirectoryId"] if version else ""
            return cls(
                epoch=int(fields["leaderEpoch"]),
                leader_id=int(fields["leaderId"]),
                voted_id=int(fields["votedId"]),
                voted_directory_id=id_bytes(directory) if directory else NIL_UUID,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptElection(f"{QUORUM_STATE} cannot be read ({error}): restore it from a copy of the folder") from error
