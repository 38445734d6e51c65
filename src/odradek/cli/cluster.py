"""`odradek cluster`: how a cluster is, and jobs that concern several nodes."""

from typing import TYPE_CHECKING, Any

from odradek.cli.commands import noun
from odradek.cli.decommission import decommission
from odradek.cli.reach import BOOTSTRAP, Bootstrap, administer
from odradek.cli.screen import BAD, GOOD, WARNING, Cell, Json, show_json, show_table

if TYPE_CHECKING:
    from odradek.client.admin import Admin, ClusterDescription, Partition, Quorum, Topic

MIN_IN_SYNC = "min.insync.replicas"

app = noun()


@app.command()
def describe(bootstrap: Bootstrap = BOOTSTRAP, json: Json = False) -> None:
    """Show the nodes of a cluster, and what is not healthy."""

    async def work(admin: "Admin") -> dict[str, Any]:
        cluster = await admin.describe_cluster(include_fenced=True)
        topics = await admin.list_topics(include_internal=True)
        unhealthy = [(topic, part) for topic in topics.values() for part in topic.partitions if not part.is_healthy]
        minima = await minima_of(admin, {topic.name for topic, _ in unhealthy})
        return {
            **nodes_of(cluster, await quorum_of(admin), topics),
            "topics": len(topics),
            "partitions": sum(len(topic.partitions) for topic in topics.values()),
            "unhealthy": [
                {
                    "topic": topic.name,
                    "partition": part.index,
                    "state": state(part, minima.get(topic.name, 1)),
                    "leader": part.leader,
                    "replicas": part.replicas,
                    "in_sync": part.in_sync,
                }
                for topic, part in unhealthy
            ],
        }

    found = administer(bootstrap, work)
    if json:
        show_json([found])
    else:
        show(found)


app.command()(decommission)


async def quorum_of(admin: "Admin") -> "Quorum | None":
    """None where the cluster does not tell."""
    from odradek.client.errors import Refused

    try:
        return await admin.describe_quorum()
    except Refused:
        return None


async def minima_of(admin: "Admin", topics: set[str]) -> dict[str, int]:
    """How many have to be in sync for a topic to take records."""
    from odradek.client.admin import Resource, ResourceKind

    found = await admin.describe_configs([Resource(ResourceKind.TOPIC, name) for name in sorted(topics)], names=[MIN_IN_SYNC])
    return {resource.name: int(configs[MIN_IN_SYNC].value or 1) for resource, configs in found.items() if MIN_IN_SYNC in configs}


def state(part: "Partition", in_sync_min: int) -> str:
    if part.leader is None:
        return "offline"
    return "under min ISR" if len(part.in_sync) < in_sync_min else "under-replicated"


def nodes_of(cluster: "ClusterDescription", quorum: "Quorum | None", topics: "dict[str, Topic]") -> dict[str, Any]:
    parts = [part for topic in topics.values() for part in topic.partitions]
    voters = set(quorum.voters) if quorum else set()
    controller = quorum.leader if quorum else cluster.controller
    nodes: list[dict[str, Any]] = [
        {
            "node": broker.id,
            "address": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "state": "away" if broker.is_fenced else "up",
            "is_broker": True,
            "leads": sum(part.leader == broker.id for part in parts),
            "replicas": sum(broker.id in part.replicas for part in parts),
        }
        for broker in cluster.brokers.values()
    ]
    for voter in sorted(voters - set(cluster.brokers)):
        places = quorum.endpoints.get(voter, ()) if quorum else ()
        address = f"{places[0].host}:{places[0].port}" if places else ""
        nodes.append(
            {"node": voter, "address": address, "rack": None, "state": "", "is_broker": False, "leads": 0, "replicas": 0}
        )
    for node in nodes:
        node["is_controller"], node["is_voter"] = node["node"] == controller, node["node"] in voters
    return {"cluster": cluster.id, "controller": controller, "nodes": nodes}


def show(found: dict[str, Any]) -> None:
    controller = "none" if found["controller"] is None else f"node {found['controller']}"
    print(f"cluster {found['cluster']}, controller: {controller}, topics: {found['topics']}, partitions: {found['partitions']}\n")
    rows = [
        (
            each["node"],
            each["address"],
            each["rack"] or "",
            Cell(each["state"], GOOD if each["state"] == "up" else BAD),
            roles(each),
            each["leads"],
            each["replicas"],
        )
        for each in found["nodes"]
    ]
    show_table(("node", "address", "rack", "state", "roles", "leads", "replicas"), rows, right=("node", "leads", "replicas"))
    if not found["unhealthy"]:
        print("\nAll partitions are healthy.")
        return
    print(f"\n{len(found['unhealthy'])} partitions are not healthy:\n")
    show_table(
        ("topic", "partition", "state", "leader", "replicas", "in sync"),
        [
            (
                each["topic"],
                each["partition"],
                Cell(each["state"], WARNING if each["state"] == "under-replicated" else BAD),
                "none" if each["leader"] is None else each["leader"],
                ", ".join(map(str, each["replicas"])),
                ", ".join(map(str, each["in_sync"])),
            )
            for each in found["unhealthy"]
        ],
        right=("partition",),
    )


def roles(node: dict[str, Any]) -> str:
    names = {"broker": node["is_broker"], "controller": node["is_controller"], "voter": node["is_voter"]}
    return ", ".join(name for name, has in names.items() if has)
