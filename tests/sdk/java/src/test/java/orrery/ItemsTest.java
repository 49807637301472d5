package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.ConsistencyLevel;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemIdentity;
import com.azure.cosmos.models.CosmosItemRequestOptions;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.UniqueKey;
import com.azure.cosmos.models.UniqueKeyPolicy;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

class ItemsTest extends Server {
    private static CosmosItemRequestOptions ifMatch(String etag) {
        return new CosmosItemRequestOptions().setIfMatchETag(etag);
    }

    private static ObjectNode read(CosmosContainer container, String id, PartitionKey key) {
        return container.readItem(id, key, ObjectNode.class).getItem();
    }

    @Test
    void lifeCycle() {
        CosmosContainer container = items();
        ObjectNode body = json("{'id':'1','pk':'a','name':'first','list':[1,'two',null,{'deep':true}]}");
        CosmosItemResponse<ObjectNode> created = container.createItem(body, key("a"), null);
        assertEquals(201, created.getStatusCode());
        assertTrue(created.getRequestCharge() > 0);
        assertFalse(created.getSessionToken().isEmpty());
        assertEquals(created.getETag(), created.getItem().get("_etag").asText());
        for (String name : List.of("_rid", "_self", "_ts", "_attachments")) {
            assertTrue(created.getItem().has(name), name);
        }
        CosmosItemResponse<ObjectNode> found = container.readItem("1", key("a"), ObjectNode.class);
        assertEquals(created.getETag(), found.getETag());
        assertEquals(body.get("list"), found.getItem().get("list"));

        CosmosItemResponse<ObjectNode> replaced = container.replaceItem(body.put("name", "second"), "1", key("a"), null);
        assertEquals(200, replaced.getStatusCode());
        assertEquals("second", replaced.getItem().get("name").asText());
        assertEquals(created.getItem().get("_rid"), replaced.getItem().get("_rid"));
        assertNotEquals(created.getETag(), replaced.getETag());

        assertEquals(204, container.deleteItem("1", key("a"), null).getStatusCode());
        refused(404, 0, () -> read(container, "1", key("a")));
        refused(404, 0, () -> container.deleteItem("1", key("a"), null));
        refused(404, 0, () -> container.replaceItem(body, "1", key("a"), null));
    }

    @Test
    void keyTakenFromTheItem() {
        CosmosContainer container = items();
        container.createItem(item("1", "a"));
        container.upsertItem(item("1", "a").put("n", 2));
        assertEquals(2, read(container, "1", key("a")).get("n").asInt());
        container.deleteItem(item("1", "a"), null);
        refused(404, 0, () -> read(container, "1", key("a")));
    }

    @Test
    void writesWithoutContent() {
        CosmosContainer container = items();
        CosmosItemRequestOptions quiet = new CosmosItemRequestOptions().setContentResponseOnWriteEnabled(false);
        CosmosItemResponse<ObjectNode> created = container.createItem(item("1", "a"), key("a"), quiet);
        assertNull(created.getItem());
        assertTrue(created.getETag().startsWith("\""));
        assertNull(container.upsertItem(item("1", "a"), key("a"), quiet).getItem());
        assertNull(container.replaceItem(item("1", "a"), "1", key("a"), quiet).getItem());
    }

    @Test
    void upsert() {
        CosmosContainer container = items();
        CosmosItemResponse<ObjectNode> inserted = container.upsertItem(item("1", "a").put("n", 1), key("a"), null);
        assertEquals(201, inserted.getStatusCode());
        CosmosItemResponse<ObjectNode> updated = container.upsertItem(item("1", "a").put("n", 2), key("a"), null);
        assertEquals(200, updated.getStatusCode());
        assertEquals(inserted.getItem().get("_rid"), updated.getItem().get("_rid"));
    }

    @Test
    void conflict() {
        CosmosContainer container = items();
        container.createItem(item("1", "a"), key("a"), null);
        refused(409, 0, () -> container.createItem(item("1", "a"), key("a"), null));
        container.createItem(item("1", "b"), key("b"), null);
    }

    @Test
    void preconditions() {
        CosmosContainer container = items();
        String first = container.createItem(item("1", "a"), key("a"), null).getETag();
        String second = container.replaceItem(item("1", "a"), "1", key("a"), ifMatch(first)).getETag();
        refused(412, 0, () -> container.replaceItem(item("1", "a"), "1", key("a"), ifMatch(first)));
        refused(412, 0, () -> container.upsertItem(item("1", "a"), key("a"), ifMatch(first)));
        refused(412, 0, () -> container.deleteItem("1", key("a"), ifMatch(first)));

        CosmosItemRequestOptions unchanged = new CosmosItemRequestOptions().setIfNoneMatchETag(second);
        int status;
        try {
            status = container.readItem("1", key("a"), unchanged, ObjectNode.class).getStatusCode();
        } catch (CosmosException notModified) {
            status = notModified.getStatusCode();
        }
        assertEquals(304, status);
        CosmosItemRequestOptions changed = new CosmosItemRequestOptions().setIfNoneMatchETag(first);
        assertEquals(200, container.readItem("1", key("a"), changed, ObjectNode.class).getStatusCode());

        assertEquals(204, container.deleteItem("1", key("a"), ifMatch("*")).getStatusCode());
        refused(404, 0, () -> container.replaceItem(item("1", "a"), "1", key("a"), ifMatch(second)));
        assertEquals(201, container.upsertItem(item("1", "a"), key("a"), ifMatch(second)).getStatusCode());
    }

    @Test
    void uniqueKeys() {
        UniqueKeyPolicy policy = new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/email", "/team/name"))));
        CosmosContainer container = container(new CosmosContainerProperties(unique("u"), "/pk").setUniqueKeyPolicy(policy));
        String form = "{'id':'%s','pk':'%s','email':'x','team':{'name':'%s'}}";
        container.createItem(json(form.formatted("1", "a", "red")), key("a"), null);
        container.createItem(json(form.formatted("2", "a", "blue")), key("a"), null);
        container.createItem(json(form.formatted("1", "b", "red")), key("b"), null);
        refused(409, 0, () -> container.createItem(json(form.formatted("3", "a", "red")), key("a"), null));
        refused(409, 0, () -> container.upsertItem(json(form.formatted("3", "a", "red")), key("a"), null));
        refused(409, 0, () -> container.replaceItem(json(form.formatted("2", "a", "red")), "2", key("a"), null));
        CosmosPatchOperations toRed = CosmosPatchOperations.create().set("/team/name", "red");
        refused(409, 0, () -> container.patchItem("2", key("a"), toRed, ObjectNode.class));
        container.deleteItem("1", key("a"), null);
        container.patchItem("2", key("a"), toRed, ObjectNode.class);
    }

    @Test
    void timeToLive() throws InterruptedException {
        CosmosContainer container = container(new CosmosContainerProperties(unique("t"), "/pk").setDefaultTimeToLiveInSeconds(1));
        container.createItem(item("short", "a"), key("a"), null);
        container.createItem(item("long", "a").put("ttl", 600), key("a"), null);
        container.createItem(item("ever", "a").put("ttl", -1), key("a"), null);
        long end = System.nanoTime() + 10_000_000_000L;
        while (true) {
            try {
                read(container, "short", key("a"));
            } catch (CosmosException gone) {
                assertEquals(404, gone.getStatusCode());
                break;
            }
            assertTrue(System.nanoTime() < end, "the item did not expire");
            Thread.sleep(100);
        }
        read(container, "long", key("a"));
        read(container, "ever", key("a"));
        container.createItem(item("short", "a"), key("a"), null);
        refused(400, () -> container.createItem(item("bad", "a").put("ttl", 0), key("a"), null));
        refused(400, () -> container.createItem(item("bad", "a").put("ttl", "5"), key("a"), null));
    }

    @Test
    void sizeLimit() {
        CosmosContainer container = items();
        String fits = "x".repeat(2 * 1024 * 1024 - 2048);
        container.createItem(item("1", "a").put("text", fits), key("a"), null);
        assertEquals(fits.length(), read(container, "1", key("a")).get("text").asText().length());
        String large = "x".repeat(2 * 1024 * 1024 + 1);
        refused(413, 0, () -> container.createItem(item("2", "a").put("text", large), key("a"), null));
    }

    @Test
    void refusedBodies() {
        CosmosContainer container = items();
        refused(400, 0, () -> container.createItem(json("{'id':1,'pk':'a'}"), key("a"), null));
        refused(400, 0, () -> container.createItem(json("{'id':'','pk':'a'}"), key("a"), null));
        refused(400, 0, () -> container.createItem(item("i".repeat(1024), "a"), key("a"), null));
        container.createItem(item("x\\y", "a"), key("a"), null);
        refused(400, 1001, () -> container.createItem(item("1", "b"), key("a"), null));
        refused(400, 1001, () -> container.upsertItem(item("1", "b"), key("a"), null));
        container.createItem(item("1", "a"), key("a"), null);
        // A replace may give the item another id.
        container.replaceItem(item("2", "a"), "1", key("a"), null);
        refused(404, 0, () -> read(container, "1", key("a")));
        assertNotNull(read(container, "2", key("a")));
    }

    @Test
    void missingContainer() {
        CosmosContainer absent = database.getContainer("absent");
        refused(404, () -> read(absent, "1", key("a")));
        refused(404, () -> absent.createItem(item("1", "a"), key("a"), null));
    }

    @Test
    void sessionsAndConsistency() {
        CosmosContainer container = items();
        String token = container.createItem(item("1", "a"), key("a"), null).getSessionToken();
        CosmosItemRequestOptions session = new CosmosItemRequestOptions().setSessionToken(token);
        assertEquals(200, container.readItem("1", key("a"), session, ObjectNode.class).getStatusCode());
        CosmosItemRequestOptions eventual = new CosmosItemRequestOptions().setConsistencyLevel(ConsistencyLevel.EVENTUAL);
        assertEquals(200, container.readItem("1", key("a"), eventual, ObjectNode.class).getStatusCode());
    }

    static List<String> oddIds() {
        return List.of("with space", " leading", "a+b", "a%20b", "100%", "a&b=c", "a;b,c", "é", "日本語", "😀", "'quoted'", "\"double\"",
            "a:b", "a@b", "$", "a.b", "...", "~tilde~", "(round)[square]{curly}", "<tag>", "a|b", "`tick`", "^", "dbs", "docs", "i".repeat(1023));
    }

    @ParameterizedTest
    @MethodSource("oddIds")
    void oddId(String id) {
        CosmosContainer container = items();
        container.createItem(item(id, "a"), key("a"), null);
        assertEquals(id, read(container, id, key("a")).get("id").asText());
        container.replaceItem(item(id, "a").put("n", 1), id, key("a"), null);
        container.deleteItem(id, key("a"), null);
        refused(404, 0, () -> read(container, id, key("a")));
    }

    @ParameterizedTest
    @ValueSource(strings = {"with space", "ünïcode", "colls", "a+b", "(x)[y]"})
    void oddContainerName(String name) {
        CosmosContainer container = container(new CosmosContainerProperties(name, "/pk"));
        container.createItem(item("1", "a"), key("a"), null);
        assertNotNull(read(container, "1", key("a")));
        container.delete();
    }

    /** One identity is a point read: no query is sent. */
    @Test
    void readManyOfOne() {
        CosmosContainer container = items();
        container.createItem(item("1", "a"), key("a"), null);
        List<ObjectNode> found = container.readMany(List.of(new CosmosItemIdentity(key("a"), "1")), ObjectNode.class).getResults();
        assertEquals("1", found.get(0).get("id").asText());
        assertTrue(container.readMany(List.of(new CosmosItemIdentity(key("a"), "absent")), ObjectNode.class).getResults().isEmpty());
    }

    @Test
    void deleteAllOfOneKey() {
        CosmosContainer container = items();
        for (int n = 0; n < 5; n++) {
            container.createItem(item("" + n, "a"), key("a"), null);
            container.createItem(item("" + n, "b"), key("b"), null);
        }
        assertEquals(200, container.deleteAllItemsByPartitionKey(key("a"), null).getStatusCode());
        for (int n = 0; n < 5; n++) {
            String id = "" + n;
            refused(404, 0, () -> read(container, id, key("a")));
            assertNotNull(read(container, id, key("b")));
        }
        container.createItem(item("0", "a"), key("a"), null);
        assertNotNull(read(container, "0", key("a")));
    }
}
