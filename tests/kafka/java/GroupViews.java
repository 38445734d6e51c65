import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ClassicGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Groups as Kafka's administration client sees them. */
public class GroupViews {
    /** All groups by name: type, protocol, state, members of a classic one, and offsets. */
    public static JsonNode all(JsonNode request) throws Exception {
        ObjectNode groups = Oracle.JSON.createObjectNode();
        try (Admin admin = Admin.create(Clients.properties(request))) {
            for (GroupListing listed : admin.listGroups().all().get()) {
                ObjectNode group = groups.putObject(listed.groupId());
                group.put("type", listed.type().map(Object::toString).orElse(""));
                group.put("protocol", listed.protocol());
                group.put("state", listed.groupState().map(Object::toString).orElse(""));
                if (group.get("type").asText().equals("Classic"))
                    describe(admin, listed.groupId(), group);
            }
        }
        return groups;
    }

    static void describe(Admin admin, String name, ObjectNode group) throws Exception {
        ClassicGroupDescription described = admin.describeClassicGroups(List.of(name)).all().get().get(name);
        group.put("chosen", described.protocolData());
        Map<String, MemberDescription> members = new TreeMap<>();
        described.members().forEach(member -> members.put(member.consumerId(), member));
        ArrayNode rows = group.putArray("members");
        for (MemberDescription member : members.values()) {
            ArrayNode row = rows.addArray().add(member.consumerId()).add(member.groupInstanceId().orElse(null));
            row.add(member.clientId()).add(member.host());
            ArrayNode assigned = row.addArray();
            member.assignment().topicPartitions().stream().map(TopicPartition::toString).sorted().forEach(assigned::add);
        }
        ObjectNode offsets = group.putObject("offsets");
        Map<TopicPartition, OffsetAndMetadata> found = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
        for (Map.Entry<TopicPartition, OffsetAndMetadata> entry : found.entrySet())
            offsets.putArray(entry.getKey().toString()).add(entry.getValue().offset()).add(entry.getValue().metadata())
                .add(entry.getValue().leaderEpoch().orElse(-1));
    }

    /** Sets offsets of a group without members. */
    public static JsonNode alter(JsonNode request) throws Exception {
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        OffsetAndMetadata offset = new OffsetAndMetadata(request.get("offset").asLong(), "set");
        try (Admin admin = Admin.create(Clients.properties(request))) {
            admin.alterConsumerGroupOffsets(request.get("group").asText(), Map.of(partition, offset)).all().get();
        }
        return Oracle.JSON.nullNode();
    }

    public static JsonNode delete(JsonNode request) throws Exception {
        try (Admin admin = Admin.create(Clients.properties(request))) {
            admin.deleteConsumerGroups(List.of(request.get("group").asText())).all().get();
        }
        return Oracle.JSON.nullNode();
    }
}
