"""Producer ids: brokers take them in blocks, and no id is ever given out twice.

Invariant: a block is given out when the record that takes it is committed; one that nobody used is lost, not reused.
"""

from typing import Final

from odradek.core.controller.brokers import check_epoch
from odradek.core.controller.decision import Decision
from odradek.core.metadata.image import MetadataImage
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import AllocateProducerIdsResponse, ProducerIdsRecord

BLOCK_SIZE: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1


def allocate_producer_ids(image: MetadataImage, broker_id: int, broker_epoch: int) -> Decision[AllocateProducerIdsResponse]:
    """The next block of ids for a broker."""
    check_epoch(image, broker_id, broker_epoch)
    first = max(image.next_producer_id, 0)
    if first > PRODUCER_ID_MAX - BLOCK_SIZE:
        reason = "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE)
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    return Decision([(record, 0)], response)
