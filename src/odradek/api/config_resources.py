"""What both requests that alter configurations have in common: the broker that takes them checks what it can judge, and the
controller hears of the rest.

A broker's own configuration can be judged by that broker alone, so that such a change has to be sent to it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from odradek.api.context import Context
from odradek.core.config.alteration import Change, altered, check_broker, check_changes, merged
from odradek.core.config.layers import known_key
from odradek.core.config.table import broker_keys
from odradek.core.controller.configs import ALTERABLE, Resource
from odradek.core.metadata.image import BROKER_RESOURCE
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.messages import AlterConfigsResponse, IncrementalAlterConfigsResponse

Answer = TypeVar(
    "Answer", AlterConfigsResponse.AlterConfigsResourceResponse, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
)


class Alteration(NamedTuple):
    resource: Resource
    changes: list[Change]
    replaces: bool  # what is not named goes


def refusals(alterations: Sequence[Alteration], ctx: Context) -> dict[Resource, Refused]:
    """Why some of them are not handed to the controller."""
    counts = Counter(alteration.resource for alteration in alterations)
    refused = {}
    for alteration in alterations:
        try:
            if counts[alteration.resource] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "a resource stands twice in the request; name each once")
            if alteration.resource.type not in ALTERABLE:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, f"configurations of the type {alteration.resource.type} cannot be altered"
                )
            check_changes(alteration.changes)
            if alteration.resource.type == BROKER_RESOURCE and not ctx.connection.is_controller:
                check_own(alteration, ctx)
        except Refused as refusal:
            refused[alteration.resource] = refusal
    return refused


def check_own(alteration: Alteration, ctx: Context) -> None:
    name = alteration.resource.name
    if name:
        check_node(name, ctx)
    current = ctx.node.image.configs.get(alteration.resource, {})
    # What cannot be used any more, because it was set under other rules, does not stand in the way of a change.
    usable = ctx.node.config.per_broker if name else ctx.node.config.cluster_wide
    before = {key: text for key, text in current.items() if key in usable or known_key(key) is None}
    values = altered(broker_keys(), before, alteration.changes)
    check_broker(ctx.node.config, merged({} if alteration.replaces else before, values), is_for_all=not name)


def check_node(name: str, ctx: Context) -> None:
    """A resource that is this node."""
    own = str(ctx.node.node_id)
    if name != own:
        raise Refused(ErrorCode.INVALID_REQUEST, f"this is the broker {own}; what concerns {name!r} has to be asked there")


async def alter(
    alterations: Sequence[Alteration], ctx: Context, answer: type[Answer], ask: Callable[[list[int]], Awaitable[list[Answer]]]
) -> list[Answer]:
    """An answer for each alteration: the broker's own refusals, and for the rest, by their numbers, what the controller says."""
    refused = refusals(alterations, ctx)
    answers: dict[Resource, Answer] = {
        resource: answer(
            error_code=refusal.code,
            error_message=refusal.message,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, refusal in refused.items()
    }
    rest = [number for number, alteration in enumerate(alterations) if alteration.resource not in refused]
    if rest:
        answers |= {Resource(given.resource_type, given.resource_name): given for given in await ask(rest)}
    return [answers[alteration.resource] for alteration in alterations]
