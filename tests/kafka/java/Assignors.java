import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** Kafka's own assignors and its hash of what a group is subscribed to. Topics are numbers, which are their ids. */
public class Assignors {
    static Uuid topic(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    /** `members` is a list of [id, instance id, topics, {topic: partitions}], `counts` has the partitions of each topic. */
    public static JsonNode assign(JsonNode request) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (JsonNode member : request.get("members")) {
            Set<Uuid> topics = new LinkedHashSet<>();
            member.get(2).forEach(number -> topics.add(topic(number.asText())));
            Map<Uuid, Set<Integer>> assigned = new LinkedHashMap<>();
            for (Map.Entry<String, JsonNode> entry : member.get(3).properties())
                for (JsonNode partition : entry.getValue()) {
                    assigned.computeIfAbsent(topic(entry.getKey()), key -> new TreeSet<>()).add(partition.asInt());
                    owners.computeIfAbsent(topic(entry.getKey()), key -> new HashMap<>()).put(partition.asInt(), member.get(0).asText());
                }
            Optional<String> instance = member.get(1).isNull() ? Optional.empty() : Optional.of(member.get(1).asText());
            members.put(member.get(0).asText(),
                new MemberSubscriptionAndAssignmentImpl(Optional.empty(), instance, topics, new Assignment(assigned)));
        }
        ConsumerGroupPartitionAssignor assignor =
            request.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        SubscriptionType type = SubscriptionType.valueOf(request.get("type").asText());
        GroupAssignment given = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            public int numPartitions(Uuid id) {
                return request.get("counts").path(Long.toString(id.getLeastSignificantBits())).asInt(-1);
            }
            public Set<String> racksForPartition(Uuid id, int partition) {
                return Set.of();
            }
        });
        ObjectNode answer = Oracle.JSON.createObjectNode();
        given.members().forEach((id, assignment) -> {
            ObjectNode target = answer.putObject(id);
            new TreeMap<>(assignment.partitions()).forEach((topic, partitions) -> {
                ArrayNode numbers = target.putArray(Long.toString(topic.getLeastSignificantBits()));
                new TreeSet<>(partitions).forEach(numbers::add);
            });
        });
        return answer;
    }

    /** `topics` is a list of [name, id, racks of each partition]. */
    public static JsonNode metadataHash(JsonNode request) {
        Map<String, CoordinatorMetadataImage.TopicMetadata> topics = new HashMap<>();
        Map<String, Long> hashes = new HashMap<>();
        for (JsonNode topic : request.get("topics"))
            topics.put(topic.get(0).asText(), new CoordinatorMetadataImage.TopicMetadata() {
                public String name() {
                    return topic.get(0).asText();
                }
                public Uuid id() {
                    java.nio.ByteBuffer id = java.nio.ByteBuffer.wrap(Oracle.unhex(topic.get(1)));
                    return new Uuid(id.getLong(), id.getLong());
                }
                public int partitionCount() {
                    return topic.get(2).size();
                }
                public List<String> partitionRacks(int partition) {
                    List<String> racks = new ArrayList<>();
                    topic.get(2).get(partition).forEach(rack -> racks.add(rack.asText()));
                    return racks;
                }
            });
        CoordinatorMetadataImage image = new CoordinatorMetadataImage() {
            public Set<Uuid> topicIds() {
                throw new UnsupportedOperationException();
            }
            public Set<String> topicNames() {
                return topics.keySet();
            }
            public Optional<TopicMetadata> topicMetadata(String name) {
                return Optional.ofNullable(topics.get(name));
            }
            public Optional<TopicMetadata> topicMetadata(Uuid id) {
                throw new UnsupportedOperationException();
            }
            public CoordinatorMetadataDelta emptyDelta() {
                throw new UnsupportedOperationException();
            }
            public long version() {
                return 0;
            }
            public boolean isEmpty() {
                return topics.isEmpty();
            }
        };
        topics.keySet().forEach(name -> hashes.put(name, Utils.computeTopicHash(name, image)));
        return Oracle.JSON.getNodeFactory().numberNode(Utils.computeGroupHash(hashes));
    }
}
