"""What a controller does about leaders now and then: back to the preferred ones, and unclean ones where a topic allows them.

Each decision is about some partitions, and says whether it should be asked for again at once.

Invariant: a partition goes to its preferred leader only while that is in the ISR, and from nobody to an unclean leader only where
unclean.leader.election.enable says so.
"""

from typing import Final

from odradek.core.controller.decision import Decision, Versioned
from odradek.core.controller.partition_change import Election
from odradek.core.controller.replication import ReplicationRules, leaderless, may_elect_unclean, partition_change
from odradek.core.metadata.image import MetadataImage

ELECTIONS_MAX: Final = 1000  # of one decision, as in Kafka


def balance_leaders(image: MetadataImage, rules: ReplicationRules) -> Decision[bool]:
    """Every leader.imbalance.check.interval.seconds, if auto.leader.rebalance.enable says so."""
    records: list[Versioned] = []
    for key in image.locations.imbalanced:
        if len(records) >= ELECTIONS_MAX:
            break
        record = partition_change(image, key, rules, Election.PREFERRED).record()
        if record is not None:
            records.append(record)
    return Decision(records, len(records) >= ELECTIONS_MAX)


def elect_unclean_leaders(image: MetadataImage, rules: ReplicationRules) -> Decision[bool]:
    """Every unclean.leader.election.interval.ms: a topic may have been allowed it since its partitions lost their leaders."""
    records: list[Versioned] = []
    for key in leaderless(image):
        if len(records) >= ELECTIONS_MAX:
            break
        if may_elect_unclean(image, image.topics_by_id[key[0]].name, rules):
            record = partition_change(image, key, rules, Election.UNCLEAN).record()
            if record is not None:
                records.append(record)
    return Decision(records, len(records) >= ELECTIONS_MAX)
