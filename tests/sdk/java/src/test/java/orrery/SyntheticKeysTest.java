package orrery;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.common.hash.Hashing;
import java.io.File;
import java.io.IOException;
import org.junit.jupiter.api.Test;

/** Partition keys that the application makes of other properties, as the README shows. */
class SyntheticKeysTest extends Server {
    /** The suffix follows from another property, so that whoever knows that property can read the item. */
    static String precalculated(String date, String vin) {
        int hash = Hashing.murmur3_32_fixed().hashString(vin, UTF_8).asInt();
        return date + "." + (1 + Integer.remainderUnsigned(hash, 400));
    }

    @Test
    void precalculatedSuffixIsReadByOnePointRead() {
        CosmosContainer events = container(new CosmosContainerProperties(unique("events"), "/partitionKey"));
        String date = "2018-08-09";
        String vin = "1HGCM82633A004352";
        String key = precalculated(date, vin);
        assertEquals("2018-08-09.353", key);
        ObjectNode event = json("{'id':'1','date':'" + date + "','VIN':'" + vin + "','partitionKey':'" + key + "'}");
        events.createItem(event, new PartitionKey(key), null);
        CosmosItemResponse<ObjectNode> read =
            events.readItem("1", new PartitionKey(precalculated(date, vin)), ObjectNode.class);
        assertEquals(vin, read.getItem().get("VIN").asText());
        assertTrue(read.getRequestCharge() > 0);
        refused(404, 0, () -> events.readItem("1", new PartitionKey(precalculated(date, "another")), ObjectNode.class));
    }

    /** The hashes that the libraries share are this library's hashes too. */
    @Test
    void hashesOfTheSharedVectors() throws IOException {
        File file = new File("../../../crates/synthetic-key/tests/data/vectors.json");
        JsonNode hashes = new ObjectMapper().readTree(file).get("hashes");
        for (JsonNode vector : hashes) {
            String text = vector.get("text").asText();
            int hash = Hashing.murmur3_32_fixed().hashString(text, UTF_8).asInt();
            assertEquals(vector.get("hash").asLong(), Integer.toUnsignedLong(hash), text);
        }
        assertTrue(hashes.size() >= 50);
    }
}
