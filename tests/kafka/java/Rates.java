import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.SimpleRate;

/** The rate by which Apache Kafka throttles replication, after each event of a history: a time, and bytes or -1 for a mere look. */
public class Rates {
    public static JsonNode measure(JsonNode request) {
        MetricConfig config = new MetricConfig()
            .timeWindow(request.get("sample_ms").asLong(), TimeUnit.MILLISECONDS)
            .samples(request.get("samples").asInt());
        SimpleRate rate = new SimpleRate();
        ArrayNode measured = Oracle.JSON.createArrayNode();
        for (JsonNode event : request.get("events")) {
            long nowMs = event.get(0).asLong();
            if (event.get(1).asLong() >= 0) {
                rate.record(config, event.get(1).asLong(), nowMs);
            } else {
                measured.add(rate.measure(config, nowMs));
            }
        }
        return measured;
    }
}
