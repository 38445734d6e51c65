"""Administration of a cluster: `Admin`, and the values that it takes and gives, one file for each noun."""

from odradek.client.admin.acls import Acl, AclFilter, AclResource, Pattern, Permission
from odradek.client.admin.admin import Admin
from odradek.client.admin.brokers import ClusterDescription, Feature, Features, LogDir, Member, Replica, ReplicaLog, Upgrade
from odradek.client.admin.configs import Change, Config, ConfigChange, ConfigType, Resource, ResourceKind, Source, Synonym
from odradek.client.admin.credentials import Mechanism, NewPassword, ScramCredential
from odradek.client.admin.describing import Group, GroupMember
from odradek.client.admin.groups import ListedGroup
from odradek.client.admin.offsets import FoundOffset, Isolation, Offset
from odradek.client.admin.placement import Election, Reassignment
from odradek.client.admin.quorum import Endpoint, Quorum, QuorumReplica
from odradek.client.admin.quotas import Entity, Match, QuotaFilter, entity
from odradek.client.admin.share_offsets import ShareOffset
from odradek.client.admin.streams import InternalTopic, StreamsGroup, StreamsMember, Subtopology, Task, Tasks
from odradek.client.admin.tokens import Principal, Token
from odradek.client.admin.topics import HIGH_WATERMARK, CreatedTopic, NewTopic, Partition, Topic
from odradek.client.admin.transactions import ActiveProducer, FencedProducer, ListedTransaction, Transaction
from odradek.wire.operations import Operation

__all__ = [
    "HIGH_WATERMARK",
    "Acl",
    "AclFilter",
    "AclResource",
    "ActiveProducer",
    "Admin",
    "Change",
    "ClusterDescription",
    "Config",
    "ConfigChange",
    "ConfigType",
    "CreatedTopic",
    "Election",
    "Endpoint",
    "Entity",
    "Feature",
    "Features",
    "FencedProducer",
    "FoundOffset",
    "Group",
    "GroupMember",
    "InternalTopic",
    "Isolation",
    "ListedGroup",
    "ListedTransaction",
    "LogDir",
    "Match",
    "Mechanism",
    "Member",
    "NewPassword",
    "NewTopic",
    "Offset",
    "Operation",
    "Partition",
    "Pattern",
    "Permission",
    "Principal",
    "Quorum",
    "QuorumReplica",
    "QuotaFilter",
    "Reassignment",
    "Replica",
    "ReplicaLog",
    "Resource",
    "ResourceKind",
    "ScramCredential",
    "ShareOffset",
    "Source",
    "StreamsGroup",
    "StreamsMember",
    "Subtopology",
    "Synonym",
    "Task",
    "Tasks",
    "Token",
    "Topic",
    "Transaction",
    "Upgrade",
    "entity",
]
