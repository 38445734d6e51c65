package org.apache.kafka.controller;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Supplier;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.controller.metrics.QuorumControllerMetrics;
import org.apache.kafka.metadata.BrokerHeartbeatReply;
import org.apache.kafka.metadata.BrokerRegistrationReply;
import org.apache.kafka.metadata.FinalizedControllerFeatures;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

/** The parts of Apache Kafka's controller that decide about brokers and partitions, without its log: what is decided is replayed at once. */
public class ClusterController implements Time {
    private final ReplicationControlManager replication;
    private final ClusterControlManager cluster;
    private final ConfigurationControlManager configs;
    private final FeatureControlManager features;
    private long nowMs = 0;
    private List<ApiMessageAndVersion> records = List.of();

    public ClusterController(String clusterId, long sessionTimeoutMs) {
        LogContext log = new LogContext();
        SnapshotRegistry snapshots = new SnapshotRegistry(log);
        features = new FeatureControlManager.Builder().setSnapshotRegistry(snapshots).setLogContext(log)
            .setQuorumFeatures(new QuorumFeatures(1, QuorumFeatures.defaultSupportedFeatureMap(true), List.of(1))).build();
        configs = new ConfigurationControlManager.Builder().setSnapshotRegistry(snapshots).setLogContext(log).setFeatureControl(features)
            .setKafkaConfigSchema(kafka.server.KafkaRaftServer.configSchema()).build();
        cluster = new ClusterControlManager.Builder().setLogContext(log).setClusterId(clusterId).setTime(this).setSnapshotRegistry(snapshots)
            .setSessionTimeoutNs(sessionTimeoutMs * 1_000_000L).setFeatureControlManager(features)
            .setMetrics(new QuorumControllerMetrics(Optional.empty(), this, 9000))
            .setBrokerShutdownHandler((id, clean, list) -> this.shutDown(id, clean, list)).build();
        replication = new ReplicationControlManager.Builder().setSnapshotRegistry(snapshots).setLogContext(log)
            .setConfigurationControl(configs).setClusterControl(cluster).setFeatureControl(features).build();
        cluster.activate();
    }

    private void shutDown(int id, boolean clean, List<ApiMessageAndVersion> list) {
        replication.handleBrokerShutdown(id, clean, list);
    }

    /** What a request makes: its records are replayed, and in `records`. */
    public byte[] decide(short key, short version, byte[] data, long offset, long nowMs) {
        this.nowMs = nowMs;
        ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(data));
        return switch (key) {
            case 43 -> answer(replication.electLeaders(new ElectLeadersRequestData(in, version)), offset, version);
            case 45 -> answer(replication.alterPartitionReassignments(new AlterPartitionReassignmentsRequestData(in, version)), offset, version);
            case 56 -> {
                RequestHeaderData header = new RequestHeaderData().setRequestApiKey(key).setRequestApiVersion(version);
                ControllerRequestContext context = new ControllerRequestContext(header, null, OptionalLong.empty());
                yield answer(replication.alterPartition(context, new AlterPartitionRequestData(in, version)), offset, version);
            }
            case 62 -> {
                FinalizedControllerFeatures finalized = features.finalizedFeatures(Long.MAX_VALUE);
                ControllerResult<BrokerRegistrationReply> result =
                    cluster.registerBroker(new BrokerRegistrationRequestData(in, version), offset, finalized, true);
                yield answer(ControllerResult.of(result.records(),
                    new BrokerRegistrationResponseData().setBrokerEpoch(result.response().epoch())), offset, version);
            }
            case 63 -> heartbeat(new BrokerHeartbeatRequestData(in, version), offset, version);
            case 64 -> {
                ControllerResult<Void> result = replication.unregisterBroker(new UnregisterBrokerRequestData(in, version).brokerId());
                yield answer(ControllerResult.of(result.records(), new UnregisterBrokerResponseData()), offset, version);
            }
            case 73 -> answer(replication.handleAssignReplicasToDirs(new AssignReplicasToDirsRequestData(in, version)), offset, version);
            default -> throw new IllegalArgumentException("key " + key);
        };
    }

    /** What is decided now and then. */
    public boolean now(String what, long offset, long nowMs) {
        this.nowMs = nowMs;
        ControllerResult<Boolean> result = switch (what) {
            case "fence_stale" -> replication.maybeFenceOneStaleBroker();
            case "balance_leaders" -> replication.maybeBalancePartitionLeaders();
            case "elect_unclean_leaders" -> replication.maybeElectUncleanLeaders();
            default -> throw new IllegalArgumentException(what);
        };
        replay(result.records(), offset);
        return result.response();
    }

    private byte[] heartbeat(BrokerHeartbeatRequestData request, long offset, short version) {
        cluster.trackBrokerHeartbeat(request.brokerId(), request.brokerEpoch());
        long registered = cluster.registerBrokerRecordOffset(request.brokerId()).orElse(Long.MAX_VALUE);
        ControllerResult<BrokerHeartbeatReply> result = replication.processBrokerHeartbeat(request, registered);
        BrokerHeartbeatReply reply = result.response();
        byte[] answer = answer(ControllerResult.of(result.records(), new BrokerHeartbeatResponseData().setIsCaughtUp(reply.isCaughtUp())
            .setIsFenced(reply.isFenced()).setShouldShutDown(reply.shouldShutDown())), offset, version);
        if (reply.inControlledShutdown())
            cluster.heartbeatManager().maybeUpdateControlledShutdownOffset(request.brokerId(), offset + result.records().size() - 1);
        return answer;
    }

    private byte[] answer(ControllerResult<? extends ApiMessage> result, long offset, short version) {
        replay(result.records(), offset);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(result.response().size(cache, version));
        result.response().write(new ByteBufferAccessor(bytes), cache, version);
        return bytes.array();
    }

    public void replay(byte[] record) {
        ByteBuffer bytes = ByteBuffer.wrap(record);
        replay(List.of(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(bytes), record.length)), 0);
    }

    /** Those of the last decision, as they stand in the log. */
    public List<byte[]> records() {
        List<byte[]> written = new ArrayList<>();
        for (ApiMessageAndVersion record : records) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer bytes = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(bytes));
            written.add(bytes.array());
        }
        return written;
    }

    private void replay(List<ApiMessageAndVersion> decided, long offset) {
        records = decided;
        for (ApiMessageAndVersion each : decided) {
            ApiMessage message = each.message();
            if (message instanceof FeatureLevelRecord record) features.replay(record);
            else if (message instanceof ConfigRecord record) configs.replay(record);
            else if (message instanceof TopicRecord record) replication.replay(record);
            else if (message instanceof PartitionRecord record) replication.replay(record);
            else if (message instanceof PartitionChangeRecord record) replication.replay(record);
            else if (message instanceof RegisterBrokerRecord record) cluster.replay(record, offset);
            else if (message instanceof UnregisterBrokerRecord record) cluster.replay(record);
            else if (message instanceof BrokerRegistrationChangeRecord record) cluster.replay(record);
            else throw new IllegalArgumentException(each.toString());
            offset++;
        }
    }

    @Override public long milliseconds() { return nowMs; }
    @Override public long nanoseconds() { return nowMs * 1_000_000L; }
    @Override public void sleep(long ms) { throw new UnsupportedOperationException(); }
    @Override public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { throw new UnsupportedOperationException(); }
}
