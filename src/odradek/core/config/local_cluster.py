"""The configuration of a cluster on one machine: a node for each port from a first one on, at most three of them voters.

Invariants
 1. Internal topics, and others unless somebody says otherwise, have min(3, nodes) copies and need min(2, nodes) in sync.
 2. The voters are one or three, the first nodes: two could lose none.
"""

from odradek.core.config.single_node import LOOPBACK, controller_port, single_node

COPIES_MAX = 3
IN_SYNC_MAX = 2


def voter_count(nodes: int) -> int:
    return 3 if nodes >= 3 else 1


def local_cluster(folders: list[str], port: int) -> list[dict[str, str]]:
    """The settings of each node, whose data is in the folder."""
    count = len(folders)
    voters = voter_count(count)
    bootstrap = ",".join(f"{LOOPBACK}:{controller_port(port + number)}" for number in range(voters))
    copies, in_sync = str(min(COPIES_MAX, count)), str(min(IN_SYNC_MAX, count))
    nodes = []
    for number, folder in enumerate(folders):
        client, controller = f"{LOOPBACK}:{port + number}", f"{LOOPBACK}:{controller_port(port + number)}"
        addresses = f"PLAINTEXT://{client}" + (f",CONTROLLER://{controller}" if number < voters else "")
        where = {
            "listeners": addresses,
            "advertised.listeners": addresses,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": bootstrap,
        }
        settings = single_node(folder, where)
        settings |= {key: copies for key in settings if key.endswith("replication.factor")}
        settings |= {key: in_sync for key in settings if key.endswith("min.isr")}
        nodes.append(
            settings
            | {
                "process.roles": "broker,controller" if number < voters else "broker",
                "node.id": str(number + 1),
                "default.replication.factor": copies,
                "min.insync.replicas": in_sync,
            }
        )
    return nodes
