"""Formatting a folder."""

from pathlib import Path
from uuid import UUID

import pytest

from odradek.core.raft.batches import CorruptSnapshot, decode_snapshot
from odradek.log.disk import RealDisk
from odradek.log.meta_properties import META_PROPERTIES, read_meta_properties
from odradek.node.format import BOOTSTRAP, FIRST_SNAPSHOT, AlreadyFormatted, format_folder, read_bootstrap
from odradek.wire.messages import FeatureLevelRecord
from tests.kafka.dump import dump
from tests.kafka.oracle import Oracle
from tests.log.disk import PowerLost, SimDisk
from tests.node.metadata import CLUSTER_ID, DIRECTORY_ID, NODE, formatted


def test_a_folder_has_its_ids_its_features_and_its_voter(tmp_path: Path, oracle: Oracle) -> None:
    disk, path = RealDisk(), str(tmp_path / "data")
    formatted(disk, path)
    meta = read_meta_properties(disk, f"{path}/{META_PROPERTIES}")
    assert meta is not None
    assert (meta.version, meta.cluster_id, meta.node_id, meta.directory_id) == (1, CLUSTER_ID, NODE, UUID(bytes=DIRECTORY_ID))
    levels = {
        record.name: record.feature_level for record in read_bootstrap(disk, path) if isinstance(record, FeatureLevelRecord)
    }
    assert levels == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    first = f"{path}/__cluster_metadata-0/{FIRST_SNAPSHOT.name}"
    assert decode_snapshot(disk.read(first)).kraft_version == 1
    printed = dump(oracle, "--cluster-metadata-decoder", "--files", f"{first},{path}/{BOOTSTRAP}")
    assert '"voterId":1' in printed
    assert '"name":"metadata.version","featureLevel":30' in printed


def test_a_folder_is_formatted_once(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "data")
    formatted(disk, path)
    before = disk.read(f"{path}/{META_PROPERTIES}")
    with pytest.raises(AlreadyFormatted, match=CLUSTER_ID):
        formatted(disk, path)
    assert disk.read(f"{path}/{META_PROPERTIES}") == before


def test_a_folder_without_metadata_has_no_voter(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "data")
    format_folder(disk, path, node_id=NODE, cluster_id=CLUSTER_ID, directory_id=DIRECTORY_ID, now_ms=1)
    assert [name for name, _ in disk.names(path)] == [BOOTSTRAP, META_PROPERTIES]


def test_after_a_power_loss_a_folder_is_formatted_as_a_whole_or_can_be_formatted_again() -> None:
    whole = SimDisk()
    formatted(whole, "/disk/data")
    for step in range(len(whole.steps)):
        disk = SimDisk()
        disk.stop_at(step)
        with pytest.raises(PowerLost):
            formatted(disk, "/disk/data")
        for found in (disk.crash("strict"), disk.crash("kept"), disk.crash("mixed", seed=step)):
            try:
                found.read(f"/disk/data/{META_PROPERTIES}")
            except FileNotFoundError:
                formatted(found, "/disk/data")
            assert len(read_bootstrap(found, "/disk/data")) == 4
            first = found.read(f"/disk/data/__cluster_metadata-0/{FIRST_SNAPSHOT.name}")
            assert decode_snapshot(first).voters is not None


def test_a_broken_bootstrap_says_so_and_a_missing_one_is_none(tmp_path: Path) -> None:
    disk, path = RealDisk(), str(tmp_path / "data")
    formatted(disk, path)
    (tmp_path / "data" / BOOTSTRAP).write_bytes(b"broken")
    with pytest.raises(CorruptSnapshot, match=BOOTSTRAP):
        read_bootstrap(disk, path)
    disk.remove(f"{path}/{BOOTSTRAP}")
    assert read_bootstrap(disk, path) == []
