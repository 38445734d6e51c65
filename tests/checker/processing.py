"""What a group makes of records in transactions that commit its offsets too: of each one result, whoever made it, and however
often it was tried.
"""

from tests.checker.evidence import Evidence
from tests.checker.facts import NEVER
from tests.checker.history import FinalRead, Record, Source
from tests.checker.report import Report
from tests.checker.writes import without_records


def check(known: Evidence) -> Report:
    report = Report()
    results: dict[Source, Record] = {}
    for final in finals(known):
        for record in final.records:
            send = known.sender(record, NEVER - 1)
            source = None if send is None else send.event.source
            if source is None:
                continue
            report.looked_at("results of records")
            first = results.setdefault(source, record)
            if first is not record:
                what = f"{source.group} has made {first.value!r} and {record.value!r}"
                sentence = f"{what} of the record at offset {source.offset} of {source.topic}-{source.partition}"
                report.found("processed_twice", sentence, without_records(final))
    _check_all(known, results, report)
    return report


def finals(known: Evidence) -> list[FinalRead]:
    return [readings["read_committed"] for readings in known.finals.values() if "read_committed" in readings]


def _check_all(known: Evidence, results: dict[Source, Record], report: Report) -> None:
    """Of a group that has caught up nothing is missing which still stands."""
    wanted = dict.fromkeys((source.group, source.topic) for source in results)
    for group, topic in wanted:
        if topic in known.compacted or topic in known.retained or known.losses.count(topic):
            continue
        for final in finals(known):
            for record in final.records if final.topic == topic else ():
                if Source(group, topic, final.partition, record.offset) not in results:
                    sentence = (
                        f"{group} has made nothing of {record.value!r} at offset {record.offset} of {topic}-{final.partition}"
                    )
                    report.found("unprocessed", sentence, without_records(final))
