"""What compaction has to leave: the last value of every key, and a tombstone as long as anything that it deletes.

Which records a compacted log still has beside these is its own affair. Where they are is held by the other rules.
"""

from tests.checker.evidence import Evidence
from tests.checker.facts import Partition
from tests.checker.history import FinalRead
from tests.checker.report import Report
from tests.checker.writes import final_of, is_deleted, name, without_records


def check(known: Evidence) -> Report:
    report = Report()
    for partition in known.partitions:
        final = final_of(known, partition)
        if final is not None and partition[0] in known.compacted and final.isolation == "read_uncommitted":
            _check_keys(known, partition, final, report)
    return report


def _check_keys(known: Evidence, partition: Partition, final: FinalRead, report: Report) -> None:
    log = known.log(*partition)
    places = known.places(log)
    there = known.offsets_of(final)
    committed = [record for record in final.records if (send := known.sender(record)) and known.state_of(send) == "committed"]
    left = {record.key: record for record in committed}  # the last of each
    for key, offset in known.last_of_key(log).items():
        place = places[offset]
        send = known.send_of(log, place)
        is_sure = send is not None and known.state_of(send) == "committed" and (*partition, key) not in known.loose_tombstones
        if not is_sure or is_deleted(known, partition, final, offset):
            continue
        report.looked_at("keys of compacted partitions")
        if offset in there:
            continue
        told = known.events[place.at]
        if place.value is not None:
            sentence = f"{place.value!r} at offset {offset} of {name(partition)} was the last of key {key!r}, and is gone"
            report.found("last_value", sentence, told, without_records(final))
        elif key in left and left[key].offset < offset:
            what = f"key {key!r} of {name(partition)} was deleted at offset {offset}"
            sentence = f"{what}; that is gone, and {left[key].value!r} at {left[key].offset} is not"
            report.found("tombstone", sentence, told, without_records(final))
