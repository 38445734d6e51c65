"""`odradek storage`: formats the folders of a node by hand, and shows what they are formatted as.

A node that is alone formats them by itself. The options are those of kafka-storage.sh.
"""

from typing import TYPE_CHECKING, Annotated, NamedTuple

from typer import BadParameter, Option

from odradek.cli.commands import check_one_of, complain, fail, noun
from odradek.cli.start import read

if TYPE_CHECKING:
    from odradek.core.config.broker import BrokerConfig
    from odradek.core.raft.voters import VoterSet

VOTERS = "The first voters, the same for all nodes: id@host:port:directory,... with ids of folders as random-uuid gives them."

app = noun()

Config = Annotated[str, Option("-c", "--config", metavar="FILE", help="The server.properties of the node.")]


class Level(NamedTuple):
    """Of a feature."""

    feature: str
    number: int


def level(text: str) -> Level:
    name, _, number = text.partition("=")
    if not name or not number.isdecimal():
        raise BadParameter(f"{text!r} is no level of a feature; write NAME=LEVEL")
    return Level(name, int(number))


class FirstVoters(NamedTuple):
    """Who votes first; none of it where that stands in the settings."""

    standalone: bool
    initial_controllers: str | None
    no_initial_controllers: bool


@app.command("format")
def format_storage(
    config: Config,
    cluster_id: Annotated[
        str | None, Option("-t", "--cluster-id", metavar="ID", help="The id of the cluster.", show_default="a random one")
    ] = None,
    standalone: Annotated[bool, Option("-s", "--standalone", help="This node is the first and only voter.")] = False,
    initial_controllers: Annotated[str | None, Option("-I", "--initial-controllers", metavar="LIST", help=VOTERS)] = None,
    no_initial_controllers: Annotated[
        bool, Option("-N", "--no-initial-controllers", help="The node joins voters that are there.")
    ] = False,
    release_version: Annotated[
        str | None,
        Option("-r", "--release-version", metavar="RELEASE", help="The metadata.version to begin with.", show_default="4.3-IV0"),
    ] = None,
    features: Annotated[
        list[Level], Option("-f", "--feature", metavar="NAME=LEVEL", parser=level, help="The level of another feature.")
    ] = [],
    ignore_formatted: Annotated[
        bool, Option("-g", "--ignore-formatted", help="Leave folders that are formatted as they are.")
    ] = False,
) -> None:
    """Format the folders of a node for a cluster.

    All nodes of a cluster get the same cluster id, and the same first voters.
    """
    from odradek.core.metadata.features import RELEASES

    first = FirstVoters(standalone, initial_controllers, no_initial_controllers)
    check_one_of(
        {
            "--standalone": standalone,
            "--initial-controllers": initial_controllers,
            "--no-initial-controllers": no_initial_controllers,
        }
    )
    release = release_version or RELEASES[-1]
    if release not in RELEASES:
        fail(f"--release-version: {release!r} is none of {', '.join(RELEASES)}")
    write_format(configured(config), cluster_id, first, release, dict(features), ignore_formatted=ignore_formatted)


def write_format(
    config: "BrokerConfig",
    cluster_id: str | None,
    first: FirstVoters,
    release: str,
    levels: dict[str, int],
    *,
    ignore_formatted: bool,
) -> None:
    import time

    from odradek.core.controller.bootstrap import new_features
    from odradek.core.metadata.features import METADATA_VERSION_MIN, RELEASES
    from odradek.node.format import AlreadyFormatted, format_folders, new_id
    from odradek.wire.ids import id_bytes, id_text

    try:
        cluster_id = id_text(id_bytes(cluster_id)) if cluster_id else id_text(new_id())
        features = new_features(RELEASES.index(release) + METADATA_VERSION_MIN, levels)
        new = format_folders(
            config,
            cluster_id=cluster_id,
            features=features,
            voters=first_voters(first, config),
            now_ms=time.time_ns() // 1_000_000,
            ignore_formatted=ignore_formatted,
        )
    except (AlreadyFormatted, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}; name folders that you may write in log.dirs")
    for path in new:
        print(f"{path}: formatted for node {config.node_id} of cluster {cluster_id}, {release}")
    if not new:
        print("all folders were formatted already")


def first_voters(given: FirstVoters, config: "BrokerConfig") -> "VoterSet | None":
    """The voters to be written into the folder; None where they stand in the settings, or are asked for. ValueError."""
    from socket import gethostname

    from odradek.core.raft.voters import Voter, VoterSet, parse_initial_voters
    from odradek.node.format import new_id

    has_choice = any(given)
    if config.voters:
        if has_choice:
            raise ValueError("the voters stand in controller.quorum.voters: leave the option away, or take the key out")
        return None
    if not config.is_controller:
        if given.standalone or given.initial_controllers:
            raise ValueError("process.roles: this node is no controller, so it keeps no voters: leave the option away")
        return None
    if not has_choice:
        raise ValueError(
            "controller.quorum.voters is not set: say who votes first with --standalone or --initial-controllers, "
            "or --no-initial-controllers when there is a quorum already"
        )
    listener = config.advertised_controller_listeners[0]
    if given.standalone:
        host = listener.host or gethostname()
        return VoterSet((Voter(config.node_id, new_id(), ((listener.name, host, listener.port),)),))
    if given.initial_controllers is None:
        return None
    voters = parse_initial_voters(given.initial_controllers, listener.name)
    if voters.find(config.node_id) is None:
        raise ValueError(f"--initial-controllers has {voters.ids}, and not node.id={config.node_id}: add it")
    return voters


@app.command("info")
def show_storage(config: Config) -> None:
    """Show what the folders of a node are formatted as.

    The exit status is 1 when one is not.
    """
    from odradek.log.checkpoint import CorruptFile
    from odradek.log.disk import RealDisk
    from odradek.log.meta_properties import META_PROPERTIES, read_meta_properties
    from odradek.wire.ids import id_text

    broker, is_sound = configured(config), True
    for path in dict.fromkeys((*broker.log_dirs, broker.metadata_log_dir)):
        try:
            found = read_meta_properties(RealDisk(), f"{path}/{META_PROPERTIES}")
        except (CorruptFile, OSError) as error:
            found, is_sound = None, False
            complain(f"{error}")
            continue
        if found is None:
            is_sound = False
            complain(f"{path} is not formatted; format it with odradek storage format")
            continue
        directory = id_text(found.directory_id.bytes) if found.directory_id else "none"
        print(f"{path}: cluster {found.cluster_id}, node {found.node_id}, directory {directory}, version {found.version}")
    if not is_sound:
        raise SystemExit(1)


@app.command("random-uuid")
def random_uuid() -> None:
    """Show a new id, for a cluster or for the folder of a voter."""
    from odradek.node.format import new_id
    from odradek.wire.ids import id_text

    print(id_text(new_id()))


def configured(path: str) -> "BrokerConfig":
    from odradek.core.config.broker import BrokerConfig
    from odradek.core.config.key import InvalidConfig

    try:
        return BrokerConfig(read(path))
    except InvalidConfig as error:
        fail(str(error))
