import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberAssignment;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Groups of Kafka's own consumers, several at a time. */
public class ConsumerGroups {
    static final Duration WAIT_MAX = Duration.ofSeconds(90);
    static final List<KafkaConsumer<byte[], byte[]>> STAYING = new ArrayList<>();

    /** `members` is a list of settings; one with a "pattern" subscribes by it, the others to `topic`. They poll until together they
     * have so many `partitions` and each has some, then the last `leaving` of them leave, and the rest poll until they have all, and
     * stay members until `close`. Gives what each had before, and what each has in the end. */
    public static JsonNode gather(JsonNode request) throws Exception {
        List<KafkaConsumer<byte[], byte[]>> consumers = new ArrayList<>();
        for (JsonNode member : request.get("members")) {
            Properties properties = Groups.properties(request);
            for (Map.Entry<String, JsonNode> setting : member.properties())
                if (!setting.getKey().equals("pattern"))
                    properties.put(setting.getKey(), setting.getValue().asText());
            KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            if (member.has("pattern"))
                consumer.subscribe(new SubscriptionPattern(member.get("pattern").asText()));
            else
                consumer.subscribe(List.of(request.get("topic").asText()));
            consumers.add(consumer);
        }
        int partitions = request.get("partitions").asInt();
        ObjectNode answer = Oracle.JSON.createObjectNode();
        share(consumers, partitions, answer.putArray("before"));
        for (int left = request.path("leaving").asInt(0); left > 0; left--)
            consumers.remove(consumers.size() - 1).close();
        share(consumers, partitions, answer.putArray("after"));
        STAYING.addAll(consumers);
        return answer;
    }

    /** Closes all consumers that stayed members: after their broker has stopped, so that they cannot leave, or before, so that they do. */
    public static JsonNode close(JsonNode request) {
        for (KafkaConsumer<byte[], byte[]> consumer : STAYING)
            consumer.close(CloseOptions.timeout(Duration.ofMillis(request.get("timeout").asInt())));
        STAYING.clear();
        return Oracle.JSON.nullNode();
    }

    static void share(List<KafkaConsumer<byte[], byte[]>> consumers, int partitions, ArrayNode rows) {
        long end = System.nanoTime() + WAIT_MAX.toNanos();
        while (true) {
            Set<TopicPartition> all = new HashSet<>();
            int count = 0;
            boolean isEmpty = false;
            for (KafkaConsumer<byte[], byte[]> consumer : consumers) {
                consumer.poll(Duration.ofMillis(50));
                isEmpty |= consumer.assignment().isEmpty();
                all.addAll(consumer.assignment());
                count += consumer.assignment().size();
            }
            if (!isEmpty && all.size() == partitions && count == partitions)
                break;
            if (System.nanoTime() > end)
                throw new IllegalStateException("they have " + all + ", " + count + " in all");
        }
        for (KafkaConsumer<byte[], byte[]> consumer : consumers)
            names(consumer.assignment(), rows.addArray());
    }

    static void names(Set<TopicPartition> partitions, ArrayNode names) {
        partitions.stream().map(TopicPartition::toString).sorted().forEach(names::add);
    }

    /** Consumer groups as the administration client sees them, by name. */
    public static JsonNode views(JsonNode request) throws Exception {
        ObjectNode groups = Oracle.JSON.createObjectNode();
        List<String> names = new ArrayList<>();
        request.get("groups").forEach(name -> names.add(name.asText()));
        try (Admin admin = Admin.create(Clients.properties(request))) {
            for (ConsumerGroupDescription found : admin.describeConsumerGroups(names).all().get().values()) {
                ObjectNode group = groups.putObject(found.groupId());
                group.put("type", found.type().toString());
                group.put("state", found.groupState().toString());
                group.put("epoch", found.groupEpoch().orElse(-1));
                group.put("targetEpoch", found.targetAssignmentEpoch().orElse(-1));
                group.put("assignor", found.partitionAssignor());
                Map<String, MemberDescription> members = new TreeMap<>();
                found.members().forEach(member -> members.put(member.consumerId(), member));
                ArrayNode rows = group.putArray("members");
                for (MemberDescription member : members.values()) {
                    ArrayNode row = rows.addArray().add(member.consumerId()).add(member.groupInstanceId().orElse(null));
                    row.add(member.clientId()).add(member.host()).add(member.memberEpoch().orElse(-1));
                    row.add(member.upgraded().orElse(null));
                    names(member.assignment().topicPartitions(), row.addArray());
                    names(member.targetAssignment().map(MemberAssignment::topicPartitions).orElse(Set.of()), row.addArray());
                }
            }
        }
        return groups;
    }

    /** The id of a topic, in hex. */
    public static JsonNode topicId(JsonNode request) throws Exception {
        String name = request.get("topic").asText();
        try (Admin admin = Admin.create(Clients.properties(request))) {
            Uuid id = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).topicId();
            byte[] bytes = ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).array();
            return Oracle.JSON.getNodeFactory().textNode(java.util.HexFormat.of().formatHex(bytes));
        }
    }
}
