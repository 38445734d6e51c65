"""ElectLeaders (0-2): the preferred leaders, or unclean ones where there is none.

v1 adds the kind of election, v2 flexible encoding. Without partitions it is for all of them; then those that have the leader they
should have are not spoken of.
"""

from odradek.core.controller.decision import RECORDS_MAX, Decision, Versioned
from odradek.core.controller.partition_change import Election
from odradek.core.controller.replication import ReplicationRules, partition_change
from odradek.core.metadata.image import MetadataImage
from odradek.core.metadata.topics import NO_LEADER
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import ElectLeadersRequest, ElectLeadersResponse

PREFERRED, UNCLEAN = 0, 1
ELECTIONS = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}

NOT_NEEDED = "Leader election not needed for topic partition."
NO_PREFERRED = "The preferred leader was not available."
NO_ELIGIBLE = "Eligible topic partition leaders are not available."


def elect_leaders(image: MetadataImage, request: ElectLeadersRequest, rules: ReplicationRules) -> Decision[ElectLeadersResponse]:
    """Refused when the kind of election is unknown."""
    election = ELECTIONS.get(request.election_type)
    if election is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    is_for_all = request.topic_partitions is None
    asked = {name: list(topic.partitions) for name, topic in image.topics.items()}
    chosen = [(topic.topic, topic.partitions) for topic in request.topic_partitions or []]
    records: list[Versioned] = []
    response = ElectLeadersResponse()
    for name, numbers in asked.items() if is_for_all else chosen:
        results = ElectLeadersResponse.ReplicaElectionResult(topic=name)
        response.replica_election_results.append(results)
        for number in numbers:
            result = ElectLeadersResponse.PartitionResult(partition_id=number, error_message=None)
            try:
                if len(records) >= RECORDS_MAX:
                    raise Refused(
                        ErrorCode.POLICY_VIOLATION, f"{RECORDS_MAX} partitions have been elected; ask again for the rest"
                    )
                records.append(elected(image, name, number, election, rules))
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
            if not is_for_all or result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                results.partition_result.append(result)
    return Decision(records, response)


def elected(image: MetadataImage, topic_name: str, number: int, election: Election, rules: ReplicationRules) -> Versioned:
    topic = image.topics.get(topic_name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}")
    partition = topic.partitions.get(number)
    if partition is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_name}-{number}")
    is_preferred = election is Election.PREFERRED
    if partition.leader == partition.preferred_leader if is_preferred else partition.leader != NO_LEADER:
        raise Refused(ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED)
    record = partition_change(image, (topic.id, number), rules, election).record()
    if record is None:
        if is_preferred:
            raise Refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, NO_PREFERRED)
        raise Refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_ELIGIBLE)
    return record
