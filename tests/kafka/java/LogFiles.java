import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.File;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LocalLog;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.log.TxnIndexSearchResult;

/** The small files of a log folder, as Apache Kafka reads and writes them. */
public class LogFiles {
    static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(1000);

    static File file(JsonNode request) {
        return new File(request.get("path").asText());
    }

    /** Rows [topic, partition, offset] of a checkpoint. */
    public static JsonNode readOffsets(JsonNode request) throws Exception {
        ArrayNode rows = Oracle.JSON.createArrayNode();
        new OffsetCheckpointFile(file(request), null).read().forEach((partition, offset) ->
            rows.addArray().add(partition.topic()).add(partition.partition()).add(offset));
        return rows;
    }

    public static JsonNode writeOffsets(JsonNode request) throws Exception {
        Map<TopicPartition, Long> offsets = new java.util.LinkedHashMap<>();
        for (JsonNode row : request.get("rows"))
            offsets.put(new TopicPartition(row.get(0).asText(), row.get(1).asInt()), row.get(2).asLong());
        new OffsetCheckpointFile(file(request), FAILURES).write(offsets);
        return Oracle.JSON.nullNode();
    }

    /** All properties of meta.properties, and what Kafka understands of them as it prints it. */
    public static JsonNode readMeta(JsonNode request) throws Exception {
        Properties properties = PropertiesUtils.readPropertiesFile(request.get("path").asText());
        ObjectNode answer = Oracle.JSON.createObjectNode();
        ObjectNode values = answer.putObject("values");
        properties.forEach((key, value) -> values.put((String) key, (String) value));
        if (request.path("understand").asBoolean())
            answer.put("meta", new MetaProperties.Builder(properties).build().toString());
        return answer;
    }

    public static JsonNode writeMeta(JsonNode request) throws Exception {
        Properties properties = new Properties();
        request.get("values").properties().forEach(entry -> properties.setProperty(entry.getKey(), entry.getValue().asText()));
        PropertiesUtils.writePropertiesFile(properties, request.get("path").asText(), true);
        return Oracle.JSON.nullNode();
    }

    public static JsonNode readPartition(JsonNode request) throws Exception {
        return new TextNode(new PartitionMetadataFile(file(request), FAILURES).read().topicId().toString());
    }

    public static JsonNode writePartition(JsonNode request) throws Exception {
        PartitionMetadataFile metadata = new PartitionMetadataFile(file(request), FAILURES);
        metadata.record(Uuid.fromString(request.get("topic_id").asText()));
        metadata.maybeFlush();
        return Oracle.JSON.nullNode();
    }

    /** The broker epoch of the mark in a folder, null when it does not say. */
    public static JsonNode readCleanShutdown(JsonNode request) throws Exception {
        CleanShutdownFileHandler mark = new CleanShutdownFileHandler(request.get("path").asText());
        OptionalLong epoch = mark.read();
        return epoch.isPresent() ? new LongNode(epoch.getAsLong()) : Oracle.JSON.nullNode();
    }

    public static JsonNode writeCleanShutdown(JsonNode request) throws Exception {
        new CleanShutdownFileHandler(request.get("path").asText()).write(request.get("epoch").asLong());
        return Oracle.JSON.nullNode();
    }

    /** [topic, partition] of each folder name, null for one that is no partition's. */
    public static JsonNode parseFolderNames(JsonNode request) throws Exception {
        ArrayNode answers = Oracle.JSON.createArrayNode();
        for (JsonNode name : request.get("names")) {
            try {
                TopicPartition partition = LocalLog.parseTopicPartitionName(new File("/tmp", name.asText()));
                answers.addArray().add(partition.topic()).add(partition.partition());
            } catch (RuntimeException error) {
                answers.addNull();
            }
        }
        return answers;
    }

    /** The names that a partition's folder has while it is current, to be deleted, stray and a future copy. */
    public static JsonNode folderNames(JsonNode request) throws Exception {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        return Oracle.JSON.createArrayNode().add(LocalLog.logDirName(partition)).add(LocalLog.logDeleteDirName(partition))
            .add(LocalLog.logStrayDirName(partition)).add(LocalLog.logFutureDirName(partition));
    }

    /** Answers to calls [name, numbers…] of the leader epochs that are kept in a folder; truncations are written at once. */
    public static JsonNode epochs(JsonNode request) throws Exception {
        LeaderEpochFileCache cache = new LeaderEpochFileCache(new TopicPartition("t", 0),
            new LeaderEpochCheckpointFile(file(request), FAILURES), new AtOnce());
        ArrayNode answers = Oracle.JSON.createArrayNode();
        for (JsonNode call : request.get("calls")) {
            ArrayNode answer = answers.addArray();
            switch (call.get(0).asText()) {
                case "assign" -> cache.assign(call.get(1).asInt(), call.get(2).asLong());
                case "end" -> {
                    Map.Entry<Integer, Long> end = cache.endOffsetFor(call.get(1).asInt(), call.get(2).asLong());
                    answer.add(end.getKey()).add(end.getValue());
                }
                case "epoch_for" -> answer.add(cache.epochForOffset(call.get(1).asLong()).orElse(-1));
                case "previous" -> answer.add(cache.previousEpoch().orElse(-1)).add(cache.latestEpoch().orElse(-1));
                case "truncate_end" -> cache.truncateFromEndAsyncFlush(call.get(1).asLong());
                case "truncate_start" -> cache.truncateFromStartAsyncFlush(call.get(1).asLong());
                case "clear" -> cache.clearAndFlush();
                case "entries" -> {
                    for (EpochEntry entry : cache.epochEntries())
                        answer.add(entry.epoch()).add(entry.startOffset());
                }
                default -> throw new IllegalArgumentException(call.toString());
            }
        }
        return answers;
    }

    static ArrayNode rows(List<AbortedTxn> transactions) {
        ArrayNode rows = Oracle.JSON.createArrayNode();
        for (AbortedTxn txn : transactions)
            rows.addArray().add(txn.producerId()).add(txn.firstOffset()).add(txn.lastOffset()).add(txn.lastStableOffset());
        return rows;
    }

    /** What a transaction index holds, after `appends` and a truncation if told, and what it collects for `ranges`. */
    public static JsonNode transactions(JsonNode request) throws Exception {
        ObjectNode answer = Oracle.JSON.createObjectNode();
        try (TransactionIndex index = new TransactionIndex(request.get("base_offset").asLong(), file(request))) {
            for (JsonNode row : request.path("appends"))
                index.append(new AbortedTxn(row.get(0).asLong(), row.get(1).asLong(), row.get(2).asLong(), row.get(3).asLong()));
            if (request.has("truncate_to"))
                index.truncateTo(request.get("truncate_to").asLong());
            index.flush();
            index.sanityCheck();
            answer.set("entries", rows(index.allAbortedTxns()));
            ArrayNode collected = answer.putArray("collected");
            for (JsonNode range : request.path("ranges")) {
                TxnIndexSearchResult found = index.collectAbortedTxns(range.get(0).asLong(), range.get(1).asLong());
                collected.addArray().add(rows(found.abortedTransactions())).add(found.isComplete());
            }
        }
        return answer;
    }

    /** The producers of a snapshot, each as numbers in the order of the file. */
    public static JsonNode readSnapshot(JsonNode request) throws Exception {
        ArrayNode rows = Oracle.JSON.createArrayNode();
        for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file(request))) {
            ArrayNode row = rows.addArray().add(entry.producerId()).add(entry.producerEpoch()).add(entry.lastTimestamp())
                .add(entry.coordinatorEpoch()).add(entry.currentTxnFirstOffset().orElse(-1L));
            for (BatchMetadata batch : entry.batchMetadata())
                row.addArray().add(batch.firstSeq()).add(batch.lastSeq()).add(batch.lastOffset()).add(batch.offsetDelta()).add(batch.timestamp());
        }
        return rows;
    }

    /** What Kafka puts off is done at once. */
    static class AtOnce implements Scheduler {
        static final ScheduledFuture<?> DONE = Executors.newScheduledThreadPool(0, task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        }).schedule(() -> { }, 0, TimeUnit.MILLISECONDS);

        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            task.run();
            return DONE;
        }

        public void resizeThreadPool(int size) { }
    }
}
