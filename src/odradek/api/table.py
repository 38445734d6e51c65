"""The APIs that a node serves, and on which kind of listener. What is not in this table is not advertised."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from odradek.api import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    allocate_producer_ids,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    api_versions,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    controller_registration,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_quorum_epoch,
    end_txn,
    envelope,
    fetch,
    fetch_snapshot,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    update_raft_voter,
    vote,
    write_txn_markers,
)
from odradek.wire.apis import APIS
from odradek.wire.message import Message

SERVED: tuple[ModuleType, ...] = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    api_versions,
    create_topics,
    delete_topics,
    delete_records,
    init_producer_id,
    offset_for_leader_epoch,
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    write_txn_markers,
    txn_offset_commit,
    describe_configs,
    alter_configs,
    incremental_alter_configs,
    describe_log_dirs,
    create_partitions,
    delete_groups,
    offset_delete,
    elect_leaders,
    alter_partition_reassignments,
    list_partition_reassignments,
    describe_quorum,
    update_features,
    describe_cluster,
    describe_producers,
    describe_transactions,
    list_transactions,
    unregister_broker,
    consumer_group_heartbeat,
    consumer_group_describe,
    describe_topic_partitions,
    list_config_resources,
    add_raft_voter,
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    end_quorum_epoch,
    envelope,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)


class Handler(NamedTuple):
    handle: Callable[[Any, Any], Any]
    request: type[Message]
    versions: range
    flexible: range


def handlers(listener: str) -> dict[int, Handler]:
    """The handlers for the listeners of "broker" or "controller", by key."""
    found = {}
    for module in SERVED:
        api = APIS[module.KEY]
        if listener in api.listeners:
            found[api.key] = Handler(module.handle, api.request, api.served, api.flexible)
    return found
