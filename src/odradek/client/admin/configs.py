"""Settings of topics, brokers, their loggers, groups and metrics of clients: what they are, where they come from, and changes."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct

from odradek.client.admin.asking import Asking, Outcomes
from odradek.client.admin.ways import ANYWHERE, Brokers
from odradek.client.connection import Connection
from odradek.client.errors import InvalidOption, KafkaError, refused
from odradek.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

ALL_BROKERS: Final = ""  # the name of the settings that hold for brokers that have none of their own


class ResourceKind(IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from, the nearest first."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4  # the file of the broker
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(IntEnum):
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Change(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Resource(NamedTuple):
    """What has settings: a topic, a group, a broker by its number."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower().replace('_', ' ')} {self.name}".rstrip()


class Synonym(Struct, frozen=True):
    """Another value that the setting has, or would have if a nearer one were not there."""

    name: str
    value: str | None
    source: Source


class Config(Struct, frozen=True):
    """A sensitive one has no value that anybody is told."""

    name: str
    value: str | None
    source: Source
    is_read_only: bool = False
    is_sensitive: bool = False
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None
    synonyms: tuple[Synonym, ...] = ()

    @property
    def is_own(self) -> bool:
        """It was set for this very resource."""
        return self.source not in (Source.DEFAULT, Source.STATIC, Source.ALL_BROKERS, Source.UNKNOWN)


class ConfigChange(Struct, frozen=True):
    """Of one setting: SET it, DELETE it (so that the next source counts), APPEND to a list or SUBTRACT from it."""

    name: str
    value: str | None = None
    change: Change = Change.SET


class Configs(Asking):
    async def describe_configs(
        self,
        resources: Iterable[Resource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[Resource, dict[str, Config]]:
        """All settings of each resource, or those that are named."""
        kind = DescribeConfigsRequest
        keys = None if names is None else [*names]

        async def ask(connection: Connection, asked: list[Resource]) -> Outcomes[Resource, dict[str, Config]]:
            request = kind(
                resources=[
                    kind.DescribeConfigsResource(resource_type=each.kind, resource_name=each.name, configuration_keys=keys)
                    for each in asked
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            answer = await connection.post(request, DescribeConfigsResponse, self._patience_ms)
            return {
                resource(each.resource_type, each.resource_name): refusal(each.error_code, each.error_message, each.resource_name)
                or {config.name: described(config) for config in each.configs}
                for each in answer.results
            }

        return await self._each("to describe settings", resources, Brokers(place), ask, timeout_ms)

    async def alter_configs(
        self,
        changes: Mapping[Resource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Changes what is named, and nothing else. All changes of a resource are made, or none."""
        kind = IncrementalAlterConfigsRequest
        wanted = {
            key: [kind.AlterableConfig(name=each.name, config_operation=each.change, value=each.value) for each in changed]
            for key, changed in changes.items()
        }

        async def ask(connection: Connection, asked: list[Resource]) -> Outcomes[Resource, None]:
            resources = [
                kind.AlterConfigsResource(resource_type=each.kind, resource_name=each.name, configs=wanted[each])
                for each in asked
            ]
            request = kind(resources=resources, validate_only=validate_only)
            answer = await connection.post(request, IncrementalAlterConfigsResponse, self._patience_ms)
            return {
                resource(each.resource_type, each.resource_name): refusal(each.error_code, each.error_message, each.resource_name)
                for each in answer.responses
            }

        await self._each("to alter settings", wanted, Brokers(place), ask, timeout_ms)

    async def list_config_resources(
        self, kinds: Iterable[ResourceKind] = (), *, timeout_ms: float | None = None
    ) -> list[Resource]:
        """What has settings, or may have; of all kinds when none is named."""
        request = ListConfigResourcesRequest(resource_types=[*kinds])
        answer = await self._one("to list what has settings", request, ListConfigResourcesResponse, timeout_ms)
        return sorted(resource(each.resource_type, each.resource_name) for each in answer.config_resources)


def place(key: object) -> int:
    """A broker says itself how it is set, and changes its own loggers."""
    assert isinstance(key, Resource)
    if key.kind not in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) or key.name == ALL_BROKERS:
        return ANYWHERE
    if not key.name.isdecimal():
        raise InvalidOption(f"{key.name!r} is no broker: it has a number")
    return int(key.name)


def resource(kind: int, name: str) -> Resource:
    return Resource(ResourceKind(kind) if kind in [*ResourceKind] else ResourceKind.UNKNOWN, name)


def refusal(code: int, reason: str | None, name: str) -> KafkaError | None:
    return refused(code, f"{name}: {reason}" if reason else name) if code else None


def source(number: int) -> Source:
    return Source(number) if number in [*Source] else Source.UNKNOWN


def described(config: DescribeConfigsResponse.DescribeConfigsResourceResult) -> Config:
    return Config(
        name=config.name,
        value=config.value,
        source=source(config.config_source),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        type=ConfigType(config.config_type) if config.config_type in [*ConfigType] else ConfigType.UNKNOWN,
        documentation=config.documentation,
        synonyms=tuple(Synonym(each.name, each.value, source(each.source)) for each in config.synonyms),
    )
