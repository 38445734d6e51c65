"""What both requests that alter configurations have in common: the broker that takes them checks what it can judge, and the
controller hears of the rest.

A broker's own configuration can be judged by that broker alone, so that such a change has to be sent to it; so do levels of its
loggers, which are changed there and then.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from odradek.api.broker_loggers import BROKER_LOGGER_RESOURCE, altered_levels
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


def settled(alterations: Sequence[Alteration], ctx: Context, *, validate_only: bool) -> dict[Resource, Refused | None]:
    """Those that are not handed to the controller: why they are refused, or None for what is done already."""
    counts = Counter(alteration.resource for alteration in alterations)
    outcomes: dict[Resource, Refused | None] = {}
    for alteration in alterations:
        type_ = alteration.resource.type
        is_logger = type_ == BROKER_LOGGER_RESOURCE and not alteration.replaces
        try:
            if counts[alteration.resource] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "a resource stands twice in the request; name each once")
            if type_ not in ALTERABLE and not is_logger:
                raise Refused(ErrorCode.INVALID_REQUEST, f"configurations of the type {type_} cannot be altered")
            check_changes(alteration.changes)
            if is_logger:
                alter_loggers(alteration, ctx, validate_only=validate_only)
                outcomes[alteration.resource] = None
            elif type_ == BROKER_RESOURCE and not ctx.connection.is_controller:
                check_own(alteration, ctx)
        except Refused as refusal:
            outcomes[alteration.resource] = refusal
    return outcomes


def alter_loggers(alteration: Alteration, ctx: Context, *, validate_only: bool) -> None:
    check_node(alteration.resource.name, ctx)
    levels = altered_levels(ctx.node.loggers.levels(), alteration.changes)
    for name, level in levels.items() if not validate_only else ():
        ctx.node.loggers.set_level(name, level)


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
    alterations: Sequence[Alteration],
    ctx: Context,
    answer: type[Answer],
    ask: Callable[[list[int]], Awaitable[list[Answer]]],
    *,
    validate_only: bool,
) -> list[Answer]:
    """An answer for each alteration: the broker's own, and for the rest, by their numbers, what the controller says."""
    here = settled(alterations, ctx, validate_only=validate_only)
    answers: dict[Resource, Answer] = {
        resource: answer(
            error_code=refusal.code if refusal else ErrorCode.NONE,
            error_message=refusal.message if refusal else None,
            resource_type=resource.type,
            resource_name=resource.name,
        )
        for resource, refusal in here.items()
    }
    rest = [number for number, alteration in enumerate(alterations) if alteration.resource not in here]
    if rest:
        answers |= {Resource(given.resource_type, given.resource_name): given for given in await ask(rest)}
    return [answers[alteration.resource] for alteration in alterations]
