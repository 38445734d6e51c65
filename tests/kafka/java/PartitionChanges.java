import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** What Apache Kafka's controller changes in a partition. */
public class PartitionChanges {
    static List<Integer> numbers(JsonNode node) {
        List<Integer> found = new ArrayList<>();
        node.forEach(number -> found.add(number.asInt()));
        return found;
    }

    /** The PartitionChangeRecord, or null, for the PartitionRecord {"hex"} of version 2 and what is asked of it. */
    public static JsonNode build(JsonNode request) {
        PartitionRecord record = new PartitionRecord(new ByteBufferAccessor(java.nio.ByteBuffer.wrap(Oracle.unhex(request.get("hex")))), (short) 2);
        Set<Integer> acceptable = new HashSet<>(numbers(request.get("acceptable")));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(new PartitionRegistration(record), record.topicId(), record.partitionId(),
            acceptable::contains, MetadataVersion.fromFeatureLevel((short) request.get("level").asInt()),
            request.get("min_insync_replicas").asInt(), request.get("elr").asBoolean());
        builder.setElection(PartitionChangeBuilder.Election.valueOf(request.get("election").asText()));
        builder.setDefaultDirProvider(broker -> new Uuid(0L, broker));
        builder.setTargetIsr(numbers(request.get("isr")));
        if (!request.get("unclean_stop").isNull())
            builder.setUncleanShutdownReplicas(List.of(request.get("unclean_stop").asInt()));
        Optional<ApiMessageAndVersion> built = builder.build();
        if (built.isEmpty())
            return Oracle.JSON.nullNode();
        ObjectSerializationCache cache = new ObjectSerializationCache();
        short version = built.get().version();
        java.nio.ByteBuffer bytes = java.nio.ByteBuffer.allocate(built.get().message().size(cache, version));
        built.get().message().write(new ByteBufferAccessor(bytes), cache, version);
        bytes.flip();
        return TextNode.valueOf(version + ":" + Oracle.hex(bytes));
    }
}
