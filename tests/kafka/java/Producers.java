import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogFileUtils;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SnapshotFile;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** What Apache Kafka's own log says to a history of appends: the verdicts, what is unstable after each, and the snapshot at its end. */
public class Producers {
    static final BrokerTopicStats STATS = new BrokerTopicStats();
    static final short NO_VERSION = -1;

    public static JsonNode judge(JsonNode request) throws Exception {
        File folder = new File(request.get("path").asText());
        LogConfig config = new LogConfig(Map.of("segment.index.bytes", "10000", "file.delete.delay.ms", "0"));
        ProducerStateManagerConfig producers =
            new ProducerStateManagerConfig(request.get("expiration_ms").asInt(), request.get("verifies").asBoolean());
        UnifiedLog log = UnifiedLog.create(folder, config, 0L, 0L, new LogFiles.AtOnce(), STATS, Time.SYSTEM, Integer.MAX_VALUE, producers,
            Integer.MAX_VALUE, new LogDirFailureChannel(10), true, Optional.empty());
        ObjectNode answer = Oracle.JSON.createObjectNode();
        ArrayNode verdicts = answer.putArray("verdicts");
        Map<Long, VerificationGuard> guards = new HashMap<>();
        for (JsonNode step : request.get("steps")) {
            ArrayNode verdict = verdicts.addArray();
            try {
                run(log, step, guards, verdict);
            } catch (Exception error) {
                verdict.add(Errors.forException(error).name());
            }
            ProducerStateManager state = log.producerStateManager();
            verdict.add(state.firstUnstableOffset().map(offset -> offset.messageOffset).orElse(-1L));
            verdict.add(state.mapEndOffset()).add(log.logEndOffset());
        }
        answer.set("aborted", LogFiles.rows(log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset())));
        log.close();
        File snapshot = LogFileUtils.producerSnapshotFile(folder, log.producerStateManager().latestSnapshotOffset().orElse(0L));
        answer.put("snapshot", snapshot.exists() ? HexFormat.of().formatHex(Files.readAllBytes(snapshot.toPath())) : "");
        ArrayNode snapshots = answer.putArray("snapshots");
        for (SnapshotFile file : ProducerStateManager.listSnapshotFiles(folder))
            snapshots.add(file.offset);
        return answer;
    }

    static void run(UnifiedLog log, JsonNode step, Map<Long, VerificationGuard> guards, ArrayNode verdict) throws Exception {
        switch (step.get("do").asText()) {
            case "append" -> {
                MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Oracle.unhex(step.get("hex"))));
                LogAppendInfo info;
                if (step.get("origin").asText().equals("follower")) {
                    info = log.appendAsFollower(records, 0);
                } else {
                    long producerId = records.batches().iterator().next().producerId();
                    VerificationGuard guard = guards.getOrDefault(producerId, VerificationGuard.SENTINEL);
                    AppendOrigin origin = step.get("origin").asText().equals("client") ? AppendOrigin.CLIENT : AppendOrigin.COORDINATOR;
                    short version = (short) step.path("transaction_version").asInt(NO_VERSION);
                    info = log.appendAsLeader(records, 0, origin, RequestLocal.noCaching(), guard, version);
                }
                verdict.add(info.firstOffset()).add(info.lastOffset());
            }
            case "verify" -> {
                long producerId = step.get("producer_id").asLong();
                VerificationGuard guard = log.maybeStartTransactionVerification(producerId, step.get("sequence").asInt(),
                    (short) step.get("epoch").asInt(), step.get("supports_epoch_bump").asBoolean());
                guards.put(producerId, guard);
                verdict.add(guard == VerificationGuard.SENTINEL ? 0 : 1);
            }
            case "high_watermark" -> log.updateHighWatermark(step.get("offset").asLong());
            case "expire" -> log.removeExpiredProducers(step.get("now_ms").asLong());
            case "roll" -> log.roll();
            case "truncate" -> log.truncateTo(step.get("offset").asLong());
            case "start" -> log.maybeIncrementLogStartOffset(step.get("offset").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion);
            default -> throw new IllegalArgumentException(step.toString());
        }
    }
}
