"""What a producer writes into a batch that is built: who it is, and where the batch stands among its own.

Invariants
 1. nothing but producer id, epoch, sequence, the transactional bit and the CRC changes, whatever stood there before
"""

import struct
from typing import Final

from odradek.wire.batch import ATTRIBUTES_POSITION, CRC_POSITION, TRANSACTIONAL
from odradek.wire.checksum import crc32c

PRODUCER_POSITION: Final = 43
_ATTRIBUTES: Final = struct.Struct(">h")
_PRODUCER: Final = struct.Struct(">qhi")
_CRC: Final = struct.Struct(">I")


def stamp(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int, *, transactional: bool = False) -> None:
    """A producer's id, epoch and sequence into one batch, and its CRC anew."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_POSITION)
    attributes = attributes & ~TRANSACTIONAL | (TRANSACTIONAL if transactional else 0)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes)
    _PRODUCER.pack_into(batch, PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    with memoryview(batch) as view:
        crc = crc32c(view[ATTRIBUTES_POSITION:])
    _CRC.pack_into(batch, CRC_POSITION, crc)
