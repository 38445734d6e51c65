"""What was sent is there: once, in order, at one offset, and nothing else is.

What an acknowledgement is worth: with acks=all the record stays, whatever happens to nodes. With acks=1 the leader alone had it,
and without acks nobody said anything: such a record may be gone, but not any more once somebody has read it.
"""

from tests.checker.evidence import Evidence
from tests.checker.facts import NEVER, Log, Partition, Place, Send, is_made_anew
from tests.checker.history import UNKNOWN_OFFSET, AnyEvent, FinalRead
from tests.checker.report import Report


def check(known: Evidence) -> Report:
    report = Report()
    report.looked_at("sends", len(known.sends))
    for outcome in ("acknowledged", "refused", "unknown"):
        report.looked_at(f"sends {outcome}", sum(send.outcome == outcome for send in known.sends.values()))
    for send in known.sent_again:
        report.found("unique_values", f"{send} was sent before, under the same key", send.event)
    for conflict in known.conflicts:
        events = known.events[conflict.first.at], known.events[conflict.at]
        where = f"offset {conflict.offset} of {name(conflict.partition)}"
        report.found("two_values", f"{where} is {conflict.first.value!r} and {conflict.value!r}", *events)
    for log in known.logs:
        _check_places(known, log, report)
    for partition in known.partitions:
        _check_final(known, partition, report)
    _check_offsets_unknown(known, report)
    return report


def name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def final_of(known: Evidence, partition: Partition) -> FinalRead | None:
    readings = known.finals.get(partition, {})
    return readings.get("read_uncommitted") or readings.get("read_committed")


def is_deleted(known: Evidence, partition: Partition, final: FinalRead | None, offset: int) -> bool:
    """Whether it is below a start of the log that retention or DeleteRecords may have moved; of a topic that was gone before
    anybody read it in the end, whether it may have been."""
    may = partition[0] in known.retained or offset < known.deletable.get(partition, 0)
    return may and (final is None or offset < final.log_start)


# -- from the offsets to the sends


def _check_places(known: Evidence, log: Log, report: Report) -> None:
    """Every record has its send; an idempotent one comes once and in order, another once for each time it was tried."""
    partition, places = log[:2], known.places(log)
    seen: dict[int, tuple[int, Place]] = {}
    last: dict[str, Send] = {}
    report.looked_at("offsets", len(places))
    for offset in sorted(places):
        place = places[offset]
        send = known.send_of(log, place)
        told = known.events[place.at]
        where = f"{place.value!r} is at offset {offset} of {name(partition)}"
        first = known.sent.get((*partition, place.key, place.value))
        if (other := known.sent_to_another(log, place)) is not None:
            sentence = f"{where}, and was sent to {other.event.topic}, which is another topic of that name"
            report.found("earlier_topic", sentence, other.event, told)
        elif first is None or first.begun > place.at:
            report.found("never_sent", f"{where}, and was not sent there before it was seen", told)
        if send is None or place.value is None:
            continue
        if send.outcome == "refused":
            report.found("refused_read", f"{where}, and had been refused", send.event, known.events[send.ended], told)
        before = seen.setdefault(send.event.id, (offset, place))
        if before[0] != offset:
            _check_duplicate(known, send, before, (offset, place), report)
            continue
        if send.event.is_idempotent and not _is_unknown_there(known, send):
            earlier = last.setdefault(send.event.producer, send)
            if earlier.begun > send.begun:
                report.found("order_of_sends", f"{where}, after {earlier}, which was sent later", send.event, earlier.event)
            last[send.event.producer] = max(earlier, send, key=lambda each: each.begun)


def _is_unknown_there(known: Evidence, send: Send) -> bool:
    """Whether its producer may go on counting where a topic that was made anew has never heard of it, and takes any sequence: as
    long as nothing of it was acknowledged there."""
    sent = send.event
    if not is_made_anew(sent.topic):
        return False
    return send.begun < known.first_acknowledged.get((sent.topic, sent.partition, sent.producer), NEVER)


def _check_duplicate(known: Evidence, send: Send, first: tuple[int, Place], second: tuple[int, Place], report: Report) -> None:
    was_tried_once = send.ended != NEVER and send.attempts == 1
    partition = send.event.topic, send.event.partition
    final = final_of(known, partition)
    if not was_tried_once and is_deleted(known, partition, final, first[0]):
        return  # a replica that began after it was deleted has never heard of its sequence, in Kafka either
    if send.event.is_idempotent or was_tried_once:
        events = send.event, known.events[first[1].at], known.events[second[1].at]
        report.found("duplicate", f"{send} is at offset {first[0]} and again at {second[0]}", *events)


# -- from what was seen to the final reading


def _check_final(known: Evidence, partition: Partition, report: Report) -> None:
    final = final_of(known, partition)
    log = known.log(*partition)
    places = known.places(log)
    if final is None:
        acknowledged = [place.acknowledged for place in places.values() if place.acknowledged]
        if acknowledged and not known.is_topic_deleted(partition[0]):
            sentence = f"{name(partition)} has {len(acknowledged)} acknowledged records, and was not read in the end"
            report.found("unread_log", sentence, acknowledged[0].event)
        return
    report.looked_at("partitions read to the end")
    _check_log_start(known, partition, final, report)
    there = known.offsets_of(final)
    for offset, place in places.items():
        if offset in there or is_deleted(known, partition, final, offset):
            continue
        if offset >= final.log_end and place.at > known.finals_at[partition]:
            continue  # somebody who had stalled has written it behind the final reading
        if partition[0] not in known.compacted and known.is_visible(log, offset, place, final.isolation):
            report.found("lost_write", _loss(partition, offset, place), *_witnesses(known, place), without_records(final))


def _loss(partition: Partition, offset: int, place: Place) -> str:
    how = f"acknowledged to {place.acknowledged.event.producer}" if place.acknowledged else "never acknowledged"
    also = ", had been read" if place.is_read else ""
    return f"{place.value!r} at offset {offset} of {name(partition)}, {how}{also}, is gone"


def _witnesses(known: Evidence, place: Place) -> list[AnyEvent]:
    send = place.acknowledged
    return [known.events[at] for at in sorted({place.at} | ({send.begun, send.ended} if send else set()))]


def without_records(final: FinalRead) -> FinalRead:
    """To be shown to people."""
    return FinalRead(final.at_ms, final.client, final.topic, final.partition, final.log_start, final.log_end, [], final.isolation)


def _check_log_start(known: Evidence, partition: Partition, final: FinalRead, report: Report) -> None:
    deletable = known.deletable.get(partition, 0)
    if final.log_start > deletable and partition[0] not in known.retained:
        sentence = f"{name(partition)} starts at {final.log_start}, nobody had asked for more than {deletable}"
        report.found("removed_without_leave", sentence, without_records(final))
    offset, at = known.deleted.get(partition, (0, 0))
    if final.log_start < offset and not known.is_before_loss(partition[0], at):
        sentence = f"{name(partition)} starts at {final.log_start}, all below {offset} had been deleted"
        report.found("deleted_records", sentence, known.events[at], without_records(final))


def _check_offsets_unknown(known: Evidence, report: Report) -> None:
    """An acknowledgement may come without an offset (a duplicate of long ago): the value is somewhere."""
    values: dict[Partition, set[tuple[str | None, str | None]]] = {}
    for send in known.sends.values():
        sent = send.event
        partition = sent.topic, sent.partition
        if send.outcome != "acknowledged" or send.offset != UNKNOWN_OFFSET or sent.acks != -1 or sent.value is None:
            continue
        final = final_of(known, partition)
        if final is None or final.log_start or known.is_before_loss(sent.topic, send.begun):
            continue
        if sent.topic in known.compacted or (final.isolation == "read_committed" and known.state_of(send) != "committed"):
            continue
        there = values.setdefault(partition, {(record.key, record.value) for record in final.records})
        if (sent.key, sent.value) not in there:
            sentence = f"{send}, acknowledged without an offset, is nowhere in {name(partition)}"
            report.found("lost_write", sentence, sent, known.events[send.ended], without_records(final))
