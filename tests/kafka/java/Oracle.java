import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;

/** Apache Kafka's own classes behind a pipe. A line {"call": "Batches.read", ...} runs the static method of that class, which takes
 * the line's JSON and gives JSON back; the answer is one line, {"result": ...} or {"error": "..."}. */
public class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            String[] call = request.get("call").asText().split("\\.");
            try {
                Object result = Class.forName(call[0]).getMethod(call[1], JsonNode.class).invoke(null, request);
                answer.set("result", (JsonNode) result);
            } catch (InvocationTargetException error) {
                answer.put("error", error.getCause().toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    static byte[] unhex(JsonNode node) {
        return java.util.HexFormat.of().parseHex(node.asText());
    }

    static String hex(java.nio.ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return java.util.HexFormat.of().formatHex(copy);
    }
}
