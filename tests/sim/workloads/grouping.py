"""Programs of groups: members to whom things happen, and witnesses who look at what is committed without being of the group."""

from contextlib import suppress
from typing import Final

import msgspec

from tests.sim.clients.classic import ClassicMember
from tests.sim.clients.commits import Identity, committed
from tests.sim.clients.connection import Lost
from tests.sim.clients.fetcher import Taste
from tests.sim.clients.library_member import LibraryMember
from tests.sim.clients.member import Member, Terms
from tests.sim.clients.modern import ModernMember
from tests.sim.clients.processor import Processor
from tests.sim.clients.program import Place, Program
from tests.sim.clients.tasks import Tasks
from tests.sim.clients.transactor import Terms as TransactionalTerms
from tests.sim.clients.transactor import Transactor
from tests.sim.clients.view import View
from tests.sim.workloads.plan import RENEWED, GroupPlan
from tests.sim.workloads.profile import Profile
from tests.sim.workloads.stage import Stage
from tests.sim.workloads.transacting import TIMEOUTS_MS, chosen_manner

STALL_MS: Final = 5000  # about a session
RACKS: Final = 3
AWAY_SECONDS_MAX: Final = 8.0
WITNESS_SECONDS: Final = 2.5
LATE: Final = 0.5  # of lives of members have commits come late, where some are there twice
TWIN_SECONDS: Final = (0.0, 4.0, 8.0)  # until it is taken for dead
LINGER_SECONDS: Final = 20.0  # longer than any stall
TOLD_APART: Final = {"Metadata": 10}  # topics of one name
SEEN_APART: Final = {"Metadata": 10, "OffsetFetch": 10}  # and their offsets
STABLE: Final = {"OffsetFetch": 7}  # what a transaction is about to commit is waited for


async def belong(program: Program, stage: Stage, group: GroupPlan) -> None:
    """Members one after another, until the run is over."""
    name, lives, chance, twins = program.name, 1, program.chance, Tasks(program)
    program.era = program.era.with_floor(**TOLD_APART) if RENEWED in group.topics else program.era
    await stage.set_up()
    while not stage.is_over:
        member = make_member(program, stage.profile, group, name)
        processor = make_processor(member, stage, group, name) if group.output and isinstance(member, Member) else None
        member.start()
        stage.count(f"members, {group.protocol}")
        accident_s = chance.expovariate(1 / stage.profile.accident_seconds)
        await stage.until(lambda: stage.is_finishing or member.is_fenced, accident_s)  # noqa: B023 - waited for here
        accident = chance.choice(("crash", "leave", "stall"))
        if stage.is_finishing and not member.is_fenced:
            await stage.until(lambda: stage.is_known or stage.is_over or member.is_fenced)  # noqa: B023 - waited for here
            has_joined = lambda: stage.is_over or member.is_fenced or member.may_commit  # noqa: B023, E731 - waited for here
            await stage.until(has_joined)
            member.rejoin()
            await stage.until(lambda: stage.is_over or member.is_fenced)  # noqa: B023 - waited for here
            accident = "leave"
        elif accident == "stall" and not member.is_fenced:
            stage.count("members stalled")
            member.stall(chance.uniform(0.5, 2.5) * STALL_MS / 1000)
            if stage.profile.has_twins and isinstance(member, Member):
                member.be_forsaken()
                twins.start(linger(member, processor, stage))
                await stage.pause(chance.choice(TWIN_SECONDS))
                lives += 1
                program = program.renamed(f"{name}.{lives}")
                continue
            await stage.pause(chance.expovariate(1 / stage.profile.accident_seconds))
        await (member.crash() if accident == "crash" else member.leave())
        if processor is not None:
            await processor.close()
            stage.count("records processed", processor.processed)
            stage.count("processors fenced", processor.is_over)
        stage.count(f"members, {accident}")
        stage.count(f"records by {group.protocol}", member.records_read)
        stage.count(f"rebalances, {group.protocol}", member.rebalances)
        stage.count(f"commits, {group.protocol}", member.commits)
        await stage.pause(chance.uniform(0, AWAY_SECONDS_MAX))
        lives += 1
        program = program.renamed(f"{name}.{lives}")


async def linger(member: Member, processor: Processor | None, stage: Stage) -> None:
    """Goes on after a stall, and ends some time."""
    await stage.until(lambda: stage.is_finishing or member.is_fenced, LINGER_SECONDS)
    await member.crash()
    if processor is not None:
        await processor.close()
    stage.count("members, twice", member.is_fenced)


def make_member(program: Program, profile: Profile, group: GroupPlan, instance: str) -> Member | LibraryMember:
    chance = program.chance
    terms = Terms(
        group.name,
        group.topics,
        group.protocol,
        instance if group.is_static else None,
        profile.session_timeout_ms,
        profile.rebalance_timeout_ms,
        heartbeat_seconds=chance.uniform(0.3, 1.0),
        commit_seconds=chance.uniform(0.3, 2.0),
    )
    taste = Taste.chosen(chance, f"rack-{chance.randrange(RACKS)}")
    if group.output:
        taste = msgspec.structs.replace(taste, isolation="read_committed")
    if profile.uses_library:
        return LibraryMember(program, taste, terms)
    return (ModernMember if group.protocol == "consumer" else ClassicMember)(program, taste, terms)


def make_processor(member: Member, stage: Stage, group: GroupPlan, name: str) -> Processor:
    """A transactional id is a member's, in all its lives, unless two of them are there at once."""
    program = member.program
    program.era = program.era.with_floor(**STABLE)
    owner = program.name if stage.profile.has_twins else name
    timeouts_ms = TIMEOUTS_MS[:-1] if stage.profile.has_twins else TIMEOUTS_MS  # of a life that nobody follows
    terms = TransactionalTerms(f"transactional-{owner}", program.chance.choice(timeouts_ms))
    transactor = Transactor(program, chosen_manner(program.chance), terms, member.awake, member.view)
    outputs = lambda: [Place(group.output, index) for index in range(stage.topics[group.output].partitions)]  # noqa: E731
    processor = Processor(transactor, group.name, outputs)
    processor.commits_late = stage.profile.has_twins and group.protocol != "consumer" and program.chance.random() < LATE
    member.process_by(processor)
    return processor


async def witness(program: Program, stage: Stage, group: GroupPlan) -> None:
    program.era = program.era.with_floor(**STABLE) if group.output else program.era
    program.era = program.era.with_floor(**SEEN_APART) if RENEWED in group.topics else program.era
    view = View(program)
    await stage.set_up()
    while not stage.is_over:
        there = [stage.topics[topic] for topic in group.topics if topic in stage.topics]
        places = [Place(topic.name, index) for topic in there for index in range(topic.partitions)]
        with suppress(Lost):
            await view.refresh(group.topics)
            await committed(program, view, Identity(group.name), places)
            stage.count("committed offsets seen")
        await stage.until(lambda: stage.is_over, WITNESS_SECONDS)
    view.close()
