import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.tools.DumpLogSegments;

/** Kafka's command-line tools, run inside this process: what they printed. */
public class Tools {
    public static JsonNode dump(JsonNode request) throws Exception {
        List<String> arguments = new ArrayList<>();
        for (JsonNode argument : request.get("arguments"))
            arguments.add(argument.asText());
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try {
            DumpLogSegments.main(arguments.toArray(new String[0]));
        } finally {
            System.setOut(before);
        }
        return Oracle.JSON.getNodeFactory().textNode(printed.toString(StandardCharsets.UTF_8));
    }
}
