"""Which columns of its sources a query needs, so that they read no others: Spark does not ask a source of ours by itself.

The optimizer of Spark has found out: right above a source is a projection of what is needed, or filters and watermarks that
pass everything on to one. Where anything else is above it, all columns count as needed; and where the plan has read a source
under other ids than its own, as a join with itself does, nothing is concluded.
"""

from collections.abc import Iterator
from typing import Any, Final

PASSING: Final = frozenset({"Filter", "EventTimeWatermark", "SubqueryAlias"})
Attributes = dict[int, str]  # names by ids
Leaf = tuple[Attributes, set[int] | None]  # and what is needed of it: None for all


def needed(frame: Any, sources: list[Any]) -> list[set[str] | None]:
    """Of each source, the columns that a frame needs; None where that is not known."""
    optimizer = frame.sparkSession._jsparkSession.sessionState().optimizer()
    leaves = [*look(optimizer.execute(frame._jdf.queryExecution().analyzed()), None)]
    known = [attributes(source._jdf.queryExecution().analyzed().output()) for source in sources]
    if any(not any(leaf.keys() <= each.keys() for each in known) for leaf, _ in leaves):
        return [None] * len(sources)
    return [columns_of(each, leaves) for each in known]


def columns_of(source: Attributes, leaves: list[Leaf]) -> set[str] | None:
    found: set[str] = set()
    for leaf, wanted in leaves:
        if leaf.keys() <= source.keys():
            if wanted is None:
                return None
            found |= {source[number] for number in wanted if number in source}
    return found


def look(plan: Any, wanted: set[int] | None) -> Iterator[Leaf]:
    """The sources of a part of a plan, of which these attributes are needed, or all."""
    children = plan.children()
    if not children.size():
        yield attributes(plan.output()), wanted
        return
    used = {*attributes(plan.references().toSeq())}
    below = None
    if plan.nodeName() == "Project":
        below = used
    elif plan.nodeName() in PASSING and wanted is not None:
        below = wanted | used
    for index in range(children.size()):
        yield from look(children.apply(index), below)


def attributes(found: Any) -> Attributes:
    return {found.apply(index).exprId().id(): found.apply(index).name() for index in range(found.size())}
