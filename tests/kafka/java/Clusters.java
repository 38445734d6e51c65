import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.controller.ClusterController;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

/** One controller of Apache Kafka at a time, and its placement of replicas. */
public class Clusters {
    static ClusterController controller;

    /** A controller that knows nothing but {"records": [...]}. */
    public static JsonNode open(JsonNode request) {
        controller = new ClusterController(request.get("cluster_id").asText(), request.get("session_timeout_ms").asLong());
        return replay(request);
    }

    public static JsonNode replay(JsonNode request) {
        request.get("records").forEach(record -> controller.replay(Oracle.unhex(record)));
        return Oracle.JSON.nullNode();
    }

    /** What a request {"key", "version", "hex"} or {"now": what} makes: records, and an answer or the name of an error. */
    public static JsonNode decide(JsonNode request) {
        ObjectNode made = Oracle.JSON.createObjectNode();
        long offset = request.get("offset").asLong();
        long nowMs = request.get("now_ms").asLong();
        try {
            if (request.has("now")) {
                made.put("again", controller.now(request.get("now").asText(), offset, nowMs));
            } else {
                byte[] answer = controller.decide((short) request.get("key").asInt(), (short) request.get("version").asInt(),
                    Oracle.unhex(request.get("hex")), offset, nowMs);
                made.put("answer", HexFormat.of().formatHex(answer));
            }
        } catch (org.apache.kafka.common.errors.ApiException error) {
            return made.put("error", Errors.forException(error).name());
        }
        controller.records().forEach(record -> made.withArray("records").add(HexFormat.of().formatHex(record)));
        return made;
    }

    /** Replicas of {"partitions"} partitions on {"brokers": [[id, rack, fenced]]}; chance is x -> x * 31 + 7 from {"seed"} on. */
    public static JsonNode place(JsonNode request) {
        List<UsableBroker> brokers = new ArrayList<>();
        request.get("brokers").forEach(broker -> brokers.add(new UsableBroker(broker.get(0).asInt(),
            broker.get(1).isNull() ? Optional.empty() : Optional.of(broker.get(1).asText()), broker.get(2).asBoolean())));
        Random chance = new Random() {
            long state = request.get("seed").asLong();

            @Override public int nextInt(int bound) {
                state = (state * 31 + 7) % 1_000_003;
                return (int) (state % bound);
            }
        };
        ClusterDescriber describer = new ClusterDescriber() {
            @Override public java.util.Iterator<UsableBroker> usableBrokers() { return brokers.iterator(); }
            @Override public Uuid defaultDir(int broker) { return Uuid.ZERO_UUID; }
        };
        return Oracle.JSON.valueToTree(new StripedReplicaPlacer(chance)
            .place(new PlacementSpec(0, request.get("partitions").asInt(), (short) request.get("replicas").asInt()), describer)
            .assignments().stream().map(assignment -> assignment.replicas()).toList());
    }
}
