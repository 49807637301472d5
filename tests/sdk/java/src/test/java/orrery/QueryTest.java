package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.azure.cosmos.models.SqlParameter;
import com.azure.cosmos.models.SqlQuerySpec;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class QueryTest extends Server {
    private CosmosContainer container;

    @BeforeAll
    void fill() {
        String id = unique("wide");
        database.createContainer(id, "/pk", ThroughputProperties.createManualThroughput(30_000));
        container = database.getContainer(id);
        for (int n = 0; n < 40; n++) {
            String pk = "p" + n % 8;
            container.createItem(item("%02d".formatted(n), pk).put("n", n), key(pk), null);
        }
    }

    private List<String> ids(String query, CosmosQueryRequestOptions options) {
        return container.queryItems(query, options, ObjectNode.class).stream().map(row -> row.get("id").asText()).toList();
    }

    private static CosmosQueryRequestOptions in(String key) {
        return new CosmosQueryRequestOptions().setPartitionKey(key(key));
    }

    @Test
    void onePartition() {
        assertEquals(List.of("33", "25", "17", "09", "01"), ids("SELECT * FROM c ORDER BY c.n DESC", in("p1")));
        SqlQuerySpec query = new SqlQuerySpec("SELECT * FROM c WHERE c.n > @n ORDER BY c.n", new SqlParameter("@n", 20));
        List<String> found = container.queryItems(query, in("p1"), ObjectNode.class).stream().map(row -> row.get("id").asText()).toList();
        assertEquals(List.of("25", "33"), found);
    }

    @Test
    void acrossPartitions() {
        assertEquals(List.of("36", "37", "38", "39"), ids("SELECT * FROM c WHERE c.n >= 36", null).stream().sorted().toList());
        assertEquals(List.of("05", "04", "03", "02", "01", "00"), ids("SELECT * FROM c WHERE c.n < 6 ORDER BY c.n DESC", null));
        assertEquals(List.of("00", "01", "02"), ids("SELECT TOP 3 * FROM c ORDER BY c.n", null));
        assertEquals(List.of("02", "03"), ids("SELECT * FROM c ORDER BY c.n OFFSET 2 LIMIT 2", null));
        assertEquals(List.of(40L), container.queryItems("SELECT VALUE COUNT(1) FROM c", null, Long.class).stream().toList());
        assertEquals(8, container.queryItems("SELECT DISTINCT VALUE c.pk FROM c", null, String.class).stream().count());
        assertEquals(8, container.queryItems("SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk", null, ObjectNode.class).stream().count());
    }

    @Test
    void pages() {
        List<FeedResponse<ObjectNode>> pages = container.queryItems("SELECT * FROM c ORDER BY c.n", null, ObjectNode.class).streamByPage(7).toList();
        List<Integer> order = pages.stream().flatMap(page -> page.getResults().stream()).map(row -> row.get("n").asInt()).toList();
        assertEquals(IntStream.range(0, 40).boxed().toList(), order);
        assertTrue(pages.stream().allMatch(page -> page.getResults().size() <= 7));
        String continuation = pages.get(0).getContinuationToken();
        assertNotNull(continuation);
        long rest = container.queryItems("SELECT * FROM c ORDER BY c.n", null, ObjectNode.class).streamByPage(continuation, 7)
            .mapToLong(page -> page.getResults().size()).sum();
        assertEquals(40 - pages.get(0).getResults().size(), rest);
    }

    @Test
    void readAll() {
        assertEquals(5, container.readAllItems(key("p3"), ObjectNode.class).stream().count());
    }

    @Test
    void readMany() {
        List<CosmosItemIdentity> wanted = List.of(
            new CosmosItemIdentity(key("p1"), "01"), new CosmosItemIdentity(key("p1"), "09"), new CosmosItemIdentity(key("p2"), "02"),
            new CosmosItemIdentity(key("p7"), "39"), new CosmosItemIdentity(key("p7"), "absent"));
        List<String> found = container.readMany(wanted, ObjectNode.class).getResults().stream().map(row -> row.get("id").asText()).sorted().toList();
        assertEquals(List.of("01", "02", "09", "39"), found);
    }

    @Test
    void prefixOfHierarchicalKey() {
        PartitionKeyDefinition definition = new PartitionKeyDefinition()
            .setPaths(List.of("/tenant", "/user")).setKind(PartitionKind.MULTI_HASH).setVersion(PartitionKeyDefinitionVersion.V2);
        CosmosContainer tree = container(new CosmosContainerProperties(unique("h"), definition));
        for (int n = 0; n < 6; n++) {
            tree.createItem(json("{'id':'%d','tenant':'t%d','user':'u%d'}".formatted(n, n % 2, n)));
        }
        CosmosQueryRequestOptions prefix = new CosmosQueryRequestOptions().setPartitionKey(new PartitionKeyBuilder().add("t1").build());
        List<String> found = tree.queryItems("SELECT * FROM c", prefix, ObjectNode.class).stream().map(row -> row.get("id").asText()).sorted().toList();
        assertEquals(List.of("1", "3", "5"), found);
    }

    @Test
    void refused() {
        refused(400, () -> ids("SELECT FROM WHERE", in("p1")));
    }
}
