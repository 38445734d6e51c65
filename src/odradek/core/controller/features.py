"""UpdateFeatures (0-2): which levels of which features the cluster is on.

v1 adds the type of the upgrade and validation alone, v2 leaves out the results of single features. It is all or nothing.

Invariants
 1. A level is raised only where every node says that it can serve it; it is lowered only on demand, where nothing is lost.
 2. A level that the cluster has without our serving it can be kept or lowered, never raised.
 3. kraft.version is the quorum's own: it stands in no FeatureLevelRecord, and rises when every voter has told that it can.
"""

from typing import Final

from odradek.core.controller.bootstrap import elr_settings
from odradek.core.controller.decision import Decision, Versioned
from odradek.core.metadata.features import (
    ELR_VERSION,
    KNOWN,
    KRAFT_VERSION,
    METADATA_VERSION,
    supported_features,
)
from odradek.core.metadata.image import MetadataImage
from odradek.core.raft.voters import VoterSet
from odradek.wire.errors import ErrorCode, Refused
from odradek.wire.message import NIL_UUID
from odradek.wire.messages import FeatureLevelRecord, NoOpRecord, UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
LEVELS_WITH_NEW_RECORDS: Final = frozenset({8, 11, 13, 14, 15, 17, 23, 30})  # of metadata.version: below them something is lost
FAILED: Final = "The update failed for all features since the following feature had an error: "


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    *,
    version: int,
    node_id: int,
    kraft_version: int,
    voters: VoterSet,
    min_insync_replicas: int,
) -> Decision[UpdateFeaturesResponse]:
    """`kraft_version` and `voters` are the quorum's own, as its leader knows them."""
    updates = {update.feature: update for update in request.feature_updates}  # of two, the last counts
    records: list[Versioned] = []
    raised: int | None = None
    for name, update in updates.items():
        level = update.max_version_level
        try:
            check_update(image, name, level, update.upgrade_type, node_id, kraft_version)
            if name == KRAFT_VERSION and level > kraft_version:
                check_voters(voters, level)
                raised = level
        except Refused as refusal:
            return Decision([], UpdateFeaturesResponse(error_code=refusal.code, error_message=FAILED + refusal.message))
        if name == KRAFT_VERSION:
            records.append((NoOpRecord(), 0))  # the level is a record of the quorum's; with this one it is waited for
        else:
            records.append((FeatureLevelRecord(name=name, feature_level=level), 0))
        if name == ELR_VERSION and level > image.features.get(name, 0):
            records += elr_settings(image, min_insync_replicas)
    response = UpdateFeaturesResponse(error_message=None)
    if version <= 1:
        response.results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=update.feature, error_message=ErrorCode.NONE.name)
            for update in request.feature_updates
        ]
    return Decision([], response) if request.validate_only else Decision(records, response, kraft_version=raised)


def check_update(image: MetadataImage, name: str, level: int, upgrade_type: int, node_id: int, kraft_version: int) -> None:
    def refused(reason: str) -> Refused:
        return Refused(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}")

    current = kraft_version if name == KRAFT_VERSION else image.features.get(name, 0)
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise refused("The controller does not support the given upgrade type.")
    if level < 0:
        raise refused("A feature version cannot be less than 0.")
    reason = unsupported(image, name, level, node_id)
    if reason is not None:
        raise refused(reason)
    if level < current and upgrade_type == UPGRADE:
        raise refused(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
        )
    if level > current and upgrade_type != UPGRADE:
        raise refused("Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        check_metadata_downgrade(current, level, upgrade_type)
    elif name == KRAFT_VERSION and level < current:
        raise refused("Can't downgrade the version of this feature.")
    elif name not in KNOWN:
        raise refused(f"Feature {name} not found.")


def check_voters(voters: VoterSet, level: int) -> None:
    """Voters come into the log with what they told the leader, so all of them have to have done so."""
    silent = [voter.id for voter in voters.voters if voter.directory_id == NIL_UUID]
    old = [voter.id for voter in voters.voters if not voter.kraft_version_min <= level <= voter.kraft_version_max]
    reason = None
    if old:
        reason = f"the voters {old} do not support it: install a newer version there"
    elif silent:
        reason = f"the voters {silent} have not told the leader that they support it: start them, and ask again in a few seconds"
    if reason is not None:
        raise Refused(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid upgrade of {KRAFT_VERSION} to {level}: {reason}.")


def check_metadata_downgrade(current: int, level: int, upgrade_type: int) -> None:
    if LEVELS_WITH_NEW_RECORDS.isdisjoint(range(level + 1, current + 1)):
        return
    reason = "Refusing to perform the requested downgrade because it might delete metadata information."
    if upgrade_type == UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    message = f"Unsupported metadata.version downgrade from {current} to {level}. {reason}"
    raise Refused(ErrorCode.INVALID_UPDATE_VERSION, message)


def unsupported(image: MetadataImage, name: str, level: int, node_id: int) -> str | None:
    """Who does not support a level."""
    nodes = {f"Local controller {node_id}": supported_features(image.features)}
    nodes |= {f"Broker {broker.id}": broker.features for broker in image.brokers.values()}
    nodes |= {f"Controller {found.id}": found.features for found in image.controllers.values() if found.id != node_id}
    for who, features in nodes.items():
        low, high = features.get(name, (0, 0))
        if not low <= level <= high:
            return f"{who} does not support this feature." if high == 0 else f"{who} only supports versions {low}-{high}"
    return None
