"""`odradek storage`: formats the folders of a node by hand, and shows what they are formatted as.

A node that is alone formats them by itself. The options are those of kafka-storage.sh.
"""

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from odradek.cli.parser import Commands, Given, complain, fail
from odradek.cli.start import read

if TYPE_CHECKING:
    from odradek.core.config.broker import BrokerConfig
    from odradek.core.raft.voters import VoterSet


def add(commands: Commands) -> None:
    storage = commands.under("storage", "Format the folders of a node, or look at them.")
    parser = storage.add("format", format_storage)
    parser.add_argument("-c", "--config", metavar="FILE", required=True, help="the server.properties of the node")
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="the id of the cluster (a random one)")
    voters = parser.add_mutually_exclusive_group()
    voters.add_argument("-s", "--standalone", action="store_true", help="this node is the first and only voter")
    voters.add_argument(
        "-I",
        "--initial-controllers",
        metavar="LIST",
        help="the first voters, the same for all nodes: id@host:port:directory,... with ids of folders as random-uuid gives them",
    )
    voters.add_argument("-N", "--no-initial-controllers", action="store_true", help="the node joins voters that are there")
    parser.add_argument("-r", "--release-version", metavar="RELEASE", help="the metadata.version to begin with (4.3-IV0)")
    parser.add_argument(
        "-f", "--feature", metavar="NAME=LEVEL", type=level, action="append", default=[], help="the level of another feature"
    )
    parser.add_argument("-g", "--ignore-formatted", action="store_true", help="leave folders that are formatted as they are")
    info = storage.add("info", show_storage)
    info.add_argument("-c", "--config", metavar="FILE", required=True, help="the server.properties of the node")
    storage.add("random-uuid", random_uuid)


def level(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not name or not number.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no level of a feature; write NAME=LEVEL")
    return name, int(number)


def format_storage(given: Given) -> None:
    """Format the folders of a node for a cluster.

    All nodes of a cluster get the same cluster id, and the same first voters.
    """
    import time

    from odradek.core.controller.bootstrap import new_features
    from odradek.core.metadata.features import METADATA_VERSION_MIN, RELEASES
    from odradek.node.format import AlreadyFormatted, format_folders, new_id
    from odradek.wire.ids import id_bytes, id_text

    config = configured(given.config)
    release = given.release_version or RELEASES[-1]
    if release not in RELEASES:
        fail(f"--release-version: {release!r} is none of {', '.join(RELEASES)}")
    try:
        cluster_id = id_text(id_bytes(given.cluster_id)) if given.cluster_id else id_text(new_id())
        features = new_features(RELEASES.index(release) + METADATA_VERSION_MIN, dict(given.feature))
        voters = first_voters(given, config)
        new = format_folders(
            config,
            cluster_id=cluster_id,
            features=features,
            voters=voters,
            now_ms=time.time_ns() // 1_000_000,
            ignore_formatted=given.ignore_formatted,
        )
    except (AlreadyFormatted, ValueError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}; name folders that you may write in log.dirs")
    for path in new:
        print(f"{path}: formatted for node {config.node_id} of cluster {cluster_id}, {release}")
    if not new:
        print("all folders were formatted already")


def first_voters(given: Given, config: "BrokerConfig") -> "VoterSet | None":
    """The voters to be written into the folder; None where they stand in the settings, or are asked for. ValueError."""
    from socket import gethostname

    from odradek.core.raft.voters import Voter, VoterSet, parse_initial_voters
    from odradek.node.format import new_id

    has_choice = given.standalone or given.initial_controllers or given.no_initial_controllers
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
    if given.no_initial_controllers:
        return None
    voters = parse_initial_voters(given.initial_controllers, listener.name)
    if voters.find(config.node_id) is None:
        raise ValueError(f"--initial-controllers has {voters.ids}, and not node.id={config.node_id}: add it")
    return voters


def show_storage(given: Given) -> None:
    """Show what the folders of a node are formatted as; exit status 1 when one is not."""
    from odradek.log.checkpoint import CorruptFile
    from odradek.log.disk import RealDisk
    from odradek.log.meta_properties import META_PROPERTIES, read_meta_properties
    from odradek.wire.ids import id_text

    config = configured(given.config)
    is_sound = True
    for path in dict.fromkeys((*config.log_dirs, config.metadata_log_dir)):
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


def random_uuid(_: Given) -> None:
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
