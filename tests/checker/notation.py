"""Small histories as text, one line for what a client does. Everything is of partition `t-0`, unless `in=` says otherwise.

    p send a > 0            begun, and acknowledged at offset 0; `> no` is refused, `> ?` unknown; `sends a`, `told a > 0` apart
                            options: acks=1, attempts=2, tx=1, by=producer, and the word `plain` for one without idempotence
    r assigned 0            by hand, or with group=g gen=1; `?` is an unknown offset; the word `kept`
    r polls a@0 b@1         with pos=2, tx=1, and the word `committed` for its isolation; `polling` before it begins it
    r revoked | r ended | r moved 7 | r denied 7    where it goes on, by itself or because there is nothing where it was
    m commits 5 > ok        of group g; `committing 5`, `heard 5 > ok` apart; tx=1, and also=u, of which it is always acknowledged
    w sees 5                what is committed; `asks` before it, apart
    p begins tx=1           p commit tx=1 > ok, p abort tx=1 > ok; `ends tx=1` asks for the commit only
    a create t > ok         a delete t > ok, a knows t u; `creating t`, `deleting t`, and `changed > ok` apart
    a deletes 5 > ok        records; `a allows compact`, `a allows loss`
    f final a@0 b@1         with start=, end=, and `committed`; `polling` before it asks for the end

`id=` says by which id a topic was spoken of, or made.

A record is `value@offset`, or `key:value@offset`; the value `-` is a tombstone.
"""

from collections.abc import Callable

from tests.checker import history
from tests.checker.check import check
from tests.checker.history import UNKNOWN_OFFSET, History, Isolation, Outcome, Position, Record

OUTCOMES: dict[str, Outcome] = {"ok": "acknowledged", "no": "refused", "?": "unknown"}


class Line:
    def __init__(self, number: int, text: str) -> None:
        self.at_ms = float(number)
        words = text.split()
        self.client, self.verb = words[:2]
        self.result = words[words.index(">") + 1] if ">" in words else "?"
        left = words[2 : words.index(">")] + words[words.index(">") + 2 :] if ">" in words else words[2:]
        self.options = dict(word.split("=") for word in left if "=" in word)
        self.words = [word for word in left if "=" not in word]
        self.topic, _, partition = self.options.get("in", "t-0").partition("-")
        self.partition = int(partition)

    @property
    def first(self) -> str:
        return self.words[0] if self.words else "?"

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES.get(self.result, "acknowledged")

    @property
    def transaction(self) -> int | None:
        return self.number("tx")

    @property
    def isolation(self) -> Isolation:
        return "read_committed" if "committed" in self.words else "read_uncommitted"

    @property
    def id(self) -> str:
        return self.options.get("id", "")

    @property
    def ids(self) -> dict[str, str]:
        return {self.topic: self.id} if self.id else {}

    def number(self, option: str) -> int | None:
        return int(self.options[option]) if option in self.options else None

    def position(self, offset: str) -> Position:
        return Position(self.topic, self.partition, UNKNOWN_OFFSET if offset == "?" else int(offset))

    def key_value(self, text: str) -> tuple[str | None, str | None]:
        key, colon, value = text.rpartition(":")
        return key if colon else None, None if value == "-" else value

    def records(self) -> list[Record]:
        pairs = [word.split("@") for word in self.words if "@" in word]
        return [Record(self.topic, self.partition, int(offset), *self.key_value(value)) for value, offset in pairs]


class Story:
    def __init__(self) -> None:
        self.history = History()
        self.ids: dict[tuple[str, ...], int] = {}

    def tell(self, line: Line) -> None:
        verbs: dict[str, Callable[[Line], None]] = {
            "send": self.send,
            "sends": self.sends,
            "told": self.told,
            "assigned": self.assigned,
            "revoked": self.revoked,
            "polls": self.polls,
            "commits": self.commits,
            "committing": self.committing,
            "heard": self.heard,
            "asks": self.asks,
            "sees": self.sees,
            "commit": self.commit,
            "abort": self.commit,
            "ends": self.ends,
            "create": self.change,
            "delete": self.change,
            "creating": self.changing,
            "deleting": self.changing,
            "changed": self.changed,
            "deletes": self.deletes,
            "allows": self.allows,
            "final": self.final,
        }
        if line.verb in verbs:
            verbs[line.verb](line)
        else:
            self.history.add(self.plain(line))

    def plain(self, line: Line) -> history.AnyEvent:
        """What is one event."""
        at, client = line.at_ms, line.client
        match line.verb:
            case "polling":
                return history.PollBegun(at, client)
            case "ended":
                return history.MemberEnded(at, client)
            case "moved":
                return history.Moved(at, client, line.topic, line.partition, line.position(line.first).offset, topic_id=line.id)
            case "denied":
                offset = line.position(line.first).offset
                return history.Moved(at, client, line.topic, line.partition, offset, "out of range", line.id)
            case "begins":
                return history.TransactionBegun(at, client, line.transaction or 0, "tx", line.options.get("by", client))
            case "knows":
                return history.TopicsSeen(at, client, "1", line.words, is_final=True, ids=line.ids)
            case verb:
                raise ValueError(verb)

    def begin(self, *what: str) -> int:
        self.ids[what] = self.history.next_id()
        return self.ids[what]

    # -- sends

    def send(self, line: Line) -> None:
        self.sends(line)
        self.told(line)

    def sends(self, line: Line) -> None:
        key, value = line.key_value(line.first)
        is_idempotent = "plain" not in line.words
        acks = {"1": 1, "0": 0, None: -1}[line.options.get("acks")]
        event = history.SendBegun(
            line.at_ms, line.client, 0, line.topic, line.partition, key, value, "", is_idempotent=is_idempotent
        )
        event.id, event.producer = self.begin(line.client, line.first), line.options.get("by", line.client)
        event.acks, event.transaction = acks, line.transaction  # type: ignore[assignment]
        self.history.add(event)

    def told(self, line: Line) -> None:
        offset = int(line.result) if line.result.isdigit() else UNKNOWN_OFFSET
        id_ = self.ids[line.client, line.first]
        attempts, ids = line.number("attempts") or 1, line.id.split(",") if line.id else []
        self.history.add(history.SendEnded(line.at_ms, line.client, id_, line.outcome, offset, attempts, ids=ids))

    # -- readers

    def assigned(self, line: Line) -> None:
        positions = [line.position(line.first)]
        fresh, kept = ([], positions) if "kept" in line.words else (positions, [])
        group, generation = line.options.get("group", ""), line.number("gen") or -1
        self.history.add(history.Assigned(line.at_ms, line.client, fresh, kept, group, line.client, generation, line.ids))

    def revoked(self, line: Line) -> None:
        self.history.add(history.Revoked(line.at_ms, line.client, [line.position("?")], line.options.get("group", "")))

    def polls(self, line: Line) -> None:
        positions = [line.position(line.options["pos"])] if "pos" in line.options else []
        event = history.Polled(line.at_ms, line.client, line.records(), positions, line.isolation, line.transaction, line.ids)
        self.history.add(event)

    # -- committed offsets

    def commits(self, line: Line) -> None:
        self.committing(line)
        self.heard(line)

    def committing(self, line: Line) -> None:
        id_ = self.begin(line.client, "commit", line.first)
        positions = [line.position(line.first), *self.also(line)]
        event = history.CommitBegun(line.at_ms, line.client, id_, "g", positions, line.client, -1, line.transaction, line.ids)
        self.history.add(event)

    def heard(self, line: Line) -> None:
        done = [line.position(line.first)]
        acknowledged, refused = (done if line.result == result else [] for result in ("ok", "no"))
        acknowledged = [*acknowledged, *self.also(line)]
        id_, attempts = self.ids[line.client, "commit", line.first], line.number("attempts") or 1
        self.history.add(history.CommitEnded(line.at_ms, line.client, id_, acknowledged, refused, attempts))

    def also(self, line: Line) -> list[Position]:
        """What is committed of another topic by the same request."""
        return [Position(line.options["also"], 0, int(line.first))] if "also" in line.options else []

    def asks(self, line: Line) -> None:
        self.history.add(history.CommittedAsked(line.at_ms, line.client, self.begin(line.client, "asks"), "g"))

    def sees(self, line: Line) -> None:
        if (line.client, "asks") not in self.ids:
            self.asks(line)
        id_ = self.ids.pop((line.client, "asks"))
        self.history.add(history.CommittedSeen(line.at_ms, line.client, id_, "g", [line.position(line.first)], line.ids))

    # -- transactions, topics, and the end

    def ends(self, line: Line) -> None:
        self.history.add(history.TransactionEnding(line.at_ms, line.client, line.transaction or 0, line.verb != "abort"))

    def commit(self, line: Line) -> None:
        self.ends(line)
        if line.outcome == "acknowledged":
            done = "aborted" if line.verb == "abort" else "committed"
            self.history.add(history.TransactionEnded(line.at_ms, line.client, line.transaction or 0, done))  # type: ignore[arg-type]

    def change(self, line: Line) -> None:
        self.changing(line)
        self.changed(line)

    def changing(self, line: Line) -> None:
        change = {"creating": "create", "deleting": "delete"}.get(line.verb, line.verb)
        id_, topic_id = self.begin(line.client, "change"), line.id if change == "delete" else ""
        event = history.TopicBegun(line.at_ms, line.client, id_, line.first, change, topic_id=topic_id)  # type: ignore[arg-type]
        self.history.add(event)

    def changed(self, line: Line) -> None:
        """What the client asked for last."""
        id_ = self.ids[line.client, "change"]
        self.history.add(history.TopicEnded(line.at_ms, line.client, id_, line.outcome, topic_id=line.id))

    def deletes(self, line: Line) -> None:
        id_ = self.history.next_id()
        self.history.add(history.DeletionBegun(line.at_ms, line.client, id_, line.topic, line.partition, int(line.first)))
        self.history.add(history.DeletionEnded(line.at_ms, line.client, id_, line.outcome, int(line.first)))

    def allows(self, line: Line) -> None:
        if line.first == "loss":
            self.history.add(history.LossAllowed(line.at_ms, line.client, "power lost"))
        else:
            self.history.add(history.RemovalAllowed(line.at_ms, line.client, line.topic, line.first))  # type: ignore[arg-type]

    def final(self, line: Line) -> None:
        records = line.records()
        end = line.number("end") or max((record.offset + 1 for record in records), default=0)
        event = history.FinalRead(line.at_ms, line.client, line.topic, line.partition, line.number("start") or 0, end, records)
        event.isolation, event.topic_id = line.isolation, line.id
        self.history.add(event)


def story(text: str) -> History:
    told = Story()
    for number, line in enumerate(line for line in text.splitlines() if line.strip()):
        told.tell(Line(number, line))
    return told.history


def broken(text: str) -> list[str]:
    """The rules that the story breaks."""
    return sorted(check(story(text)).by_rule)
