"""What can go wrong for a program that talks to a cluster: one family, which says what it concerns and whether to try again.

    KafkaError
      Unreachable         there is no answer: nobody listens, the connection broke, or time ran out for one request
      TimedOut            what was asked for did not succeed within its time, however often it was tried
      Refused             a broker said no; `code` says why
        Fenced            somebody else has this transactional id, member or instance by now: this client is at its end
        NoOffset          there is nothing at the offset that was asked for, and nobody said where to go on
      Corrupt             the bytes of records are not those that were written
      TransactionFailed   the transaction has to be aborted; the producer can go on after that
      Closed              the client was closed
      InvalidOption       what was given cannot be (a ValueError as well)
      SomeFailed          of many that were asked for at once, some failed: `errors` has why, `done` what became of the others

Invariants
 1. Whatever leaves a client on account of the cluster is a KafkaError. Only a bug raises anything else.
"""

from collections.abc import Mapping
from typing import Any, Final, TypedDict, Unpack

from odradek.wire.errors import ErrorCode

FENCING: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)


class About(TypedDict, total=False):
    """What an error concerns, as far as it concerns one."""

    topic: str | None
    partition: int | None
    offset: int | None
    group: str | None
    transactional_id: str | None


class KafkaError(Exception):
    """Says what it concerns, as far as it concerns one: a topic, a partition and offset, a group, a transactional id."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    is_retriable = False  # the same call may succeed later; for a record: it may have been written nevertheless

    def __init__(self, message: str, **about: Unpack[About]) -> None:
        super().__init__(message)
        self.message = message
        self.topic = about.get("topic")
        self.partition = about.get("partition")
        self.offset = about.get("offset")
        self.group = about.get("group")
        self.transactional_id = about.get("transactional_id")


class Unreachable(KafkaError):
    """`was_sent`: the request may have been heard, and done."""

    code = ErrorCode.NETWORK_EXCEPTION
    is_retriable = True

    def __init__(self, message: str, *, was_sent: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class TimedOut(KafkaError):
    """The last thing that stood in the way is in the message, and is its `__cause__` where it was an error."""

    code = ErrorCode.REQUEST_TIMED_OUT
    is_retriable = True


class Refused(KafkaError):
    def __init__(self, code: ErrorCode, message: str | None = None, **about: Unpack[About]) -> None:
        topic, partition = about.get("topic"), about.get("partition")
        place = f"{topic}-{partition}" if partition is not None else topic
        what = place or about.get("group") or about.get("transactional_id")
        said = f"{code.name}: {message}" if message else code.name
        super().__init__(f"{what}: {said}" if what else said, **about)
        self.code = code
        self.is_retriable = code.retriable


class Fenced(Refused): ...


class NoOffset(Refused): ...


class Corrupt(KafkaError):
    """They may have been changed on their way: who comes back for more gets them anew."""

    code = ErrorCode.CORRUPT_MESSAGE
    is_retriable = True


class TransactionFailed(KafkaError):
    """The cause says what failed."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class Closed(KafkaError): ...


class InvalidOption(KafkaError, ValueError):
    code = ErrorCode.INVALID_CONFIG


class SomeFailed(KafkaError):
    """Both are by key: a topic, a partition, a group, or whatever there were many of."""

    def __init__(self, errors: Mapping[Any, KafkaError], done: Mapping[Any, Any]) -> None:
        assert errors
        first = next(iter(errors.values()))
        super().__init__("; ".join(dict.fromkeys(map(str, errors.values()))))
        self.errors = errors
        self.done = done
        self.code = first.code
        self.is_retriable = all(each.is_retriable for each in errors.values())


def refused(code: int, message: str | None = None, **about: Unpack[About]) -> Refused:
    """The error of a code that was answered."""
    known = known_code(code)
    return (Fenced if known in FENCING else Refused)(known, message, **about)


def known_code(code: int) -> ErrorCode:
    """A cluster may be newer than this client."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
