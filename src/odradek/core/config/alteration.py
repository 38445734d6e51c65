"""Changes of configurations: what operations make of the values there are, and which changes a running broker takes.

Invariants
 1. Nothing is changed here: values go in, values come out, or Refused says why not.
 2. A change of a broker's configuration that is let pass can be applied while the broker runs.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.core.config.broker import BrokerConfig
from odradek.core.config.key import InvalidConfig, Key
from odradek.core.config.layers import LISTENER_PREFIX, known_key
from odradek.wire.errors import ErrorCode, Refused

VALUE_CHARACTERS_MAX: Final = 32767
ONLY_OF_LISTENERS: Final = (  # with the prefix of a listener they may change, without it not
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
ALSO_OF_LISTENERS: Final = ("max.connection.creation.rate", "max.connections", "num.network.threads")
POOLS: Final = (  # sizes that Apache Kafka lets grow and shrink by half or twice at a time
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
ONLY_AT_A_START: Final = ("listener.security.protocol.map", "listeners", "principal.builder.class")


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    name: str
    operation: int
    value: str | None


def check_changes(changes: Sequence[Change]) -> None:
    """What is wrong with a list of changes, whatever it is about."""
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise Refused(ErrorCode.INVALID_REQUEST, "a key stands twice among the changes; name each once")
    missing = [change.name for change in changes if change.value is None and change.operation != Operation.DELETE]
    if missing:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"{', '.join(missing)}: a value must be given; to go back to the default, delete it"
        )
    for change in changes:
        if change.operation not in Operation.__members__.values():
            raise Refused(ErrorCode.INVALID_REQUEST, f"{change.name}: there is no operation {change.operation}")


def altered(keys: Mapping[str, Key], before: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str | None]:
    """The new value of each key that is named; None where it has none any more."""
    values: dict[str, str | None] = {}
    for name, operation, value in changes:
        match operation:
            case Operation.SET:
                values[name] = value
            case Operation.DELETE:
                values[name] = None
            case _:
                assert value is not None
                values[name] = altered_list(keys.get(name), before.get(name), operation == Operation.APPEND, name, value)
    return values


def altered_list(key: Key | None, before: str | None, appends: bool, name: str, value: str) -> str:
    if key is None or key.type != "list":
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name}: it is no list, so that nothing can be appended or subtracted; set it")
    parts = [part for part in (key.default or "" if before is None else before).split(",") if part]
    for part in java_split(value):
        if appends and part not in parts:
            parts.append(part)
        elif not appends and part in parts:
            parts.remove(part)
    return ",".join(parts)


def java_split(text: str) -> list[str]:
    """The parts between commas, without empty ones at the end, as Java splits."""
    return text.rstrip(",").split(",") if text.rstrip(",") or not text else []


def merged(before: Mapping[str, str], values: Mapping[str, str | None]) -> dict[str, str]:
    after = {name: text for name, text in before.items() if name not in values}
    return after | {name: text for name, text in values.items() if text is not None}


def check_sizes(values: Mapping[str, str | None]) -> None:
    for name, text in values.items():
        if text is not None and len(text) > VALUE_CHARACTERS_MAX:
            raise Refused(
                ErrorCode.INVALID_CONFIG, f"{name}: the value has {len(text)} characters; {VALUE_CHARACTERS_MAX} are allowed"
            )


def check_broker(config: BrokerConfig, values: Mapping[str, str], *, is_for_all: bool) -> None:
    """Whether a running broker, or all of them, may have these dynamic values."""
    try:
        for name, text in values.items():
            check_broker_value(name, text, is_for_all)
        cluster_wide, per_broker = (values, config.per_broker) if is_for_all else (config.cluster_wide, values)
        after = BrokerConfig(config.static, cluster_wide, per_broker)
        check_pools(config, after)
    except InvalidConfig as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None


def check_broker_value(name: str, text: str, is_for_all: bool) -> None:
    key = known_key(name)
    if key is None:  # a plugin's, for all that Apache Kafka knows
        return
    of_listener = name.startswith(LISTENER_PREFIX)
    if key.mode == "read-only":
        raise InvalidConfig(f"{name}: it cannot change while a broker runs; set it in the configuration file and restart")
    if name in ONLY_AT_A_START:
        raise InvalidConfig(
            f"{name}: odradek does not change it while a broker runs; set it in the configuration file and restart"
        )
    if name in ONLY_OF_LISTENERS:
        raise InvalidConfig(f"{name}: it can change for one listener only; name it as listener.name.<listener>.{name}")
    key.parse(text)
    if is_for_all and (key.mode == "per-broker" or (of_listener and key.name not in ALSO_OF_LISTENERS)):
        raise InvalidConfig(f"{name}: it cannot be set for all brokers at once; name a broker")


def check_pools(before: BrokerConfig, after: BrokerConfig) -> None:
    for name in POOLS:
        old, new = before.integer(name), after.integer(name)
        if new != old and not old / 2 <= new <= old * 2:
            raise InvalidConfig(f"{name}: it can at most double or halve at once; it is {old} now")
