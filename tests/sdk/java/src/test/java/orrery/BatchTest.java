package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosBatch;
import com.azure.cosmos.models.CosmosBatchItemRequestOptions;
import com.azure.cosmos.models.CosmosBatchOperationResult;
import com.azure.cosmos.models.CosmosBatchRequestOptions;
import com.azure.cosmos.models.CosmosBatchResponse;
import com.azure.cosmos.models.CosmosBulkItemResponse;
import com.azure.cosmos.models.CosmosBulkOperationResponse;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class BatchTest extends Server {
    private static CosmosBatch batch(String key) {
        return CosmosBatch.createCosmosBatch(key(key));
    }

    private static List<Integer> statuses(CosmosBatchResponse response) {
        return response.getResults().stream().map(CosmosBatchOperationResult::getStatusCode).toList();
    }

    @Test
    void success() {
        CosmosContainer container = items();
        for (String id : List.of("replaced", "patched", "deleted", "read")) {
            container.createItem(item(id, "a").put("n", 1), key("a"), null);
        }
        CosmosBatch batch = batch("a");
        batch.createItemOperation(item("created", "a"));
        batch.upsertItemOperation(item("upserted", "a"));
        batch.replaceItemOperation("replaced", item("replaced", "a").put("n", 2));
        batch.patchItemOperation("patched", CosmosPatchOperations.create().increment("/n", 4));
        batch.deleteItemOperation("deleted");
        batch.readItemOperation("read");
        batch.readItemOperation("created");
        CosmosBatchResponse response = container.executeCosmosBatch(batch);
        assertTrue(response.isSuccessStatusCode(), response::getErrorMessage);
        assertEquals(List.of(201, 201, 200, 200, 204, 200, 200), statuses(response));
        assertTrue(response.getRequestCharge() > 0);
        assertFalse(response.getSessionToken().isEmpty());
        assertTrue(response.getResults().get(0).getETag().startsWith("\""));
        assertEquals(5, response.getResults().get(3).getItem(ObjectNode.class).get("n").asInt());
        assertEquals("created", response.getResults().get(6).getItem(ObjectNode.class).get("id").asText());
        refused(404, 0, () -> container.readItem("deleted", key("a"), ObjectNode.class));
    }

    @Test
    void failureChangesNothing() {
        CosmosContainer container = items();
        container.createItem(item("there", "a").put("n", 1), key("a"), null);
        CosmosBatch batch = batch("a");
        batch.createItemOperation(item("new", "a"));
        batch.replaceItemOperation("there", item("there", "a").put("n", 2));
        batch.createItemOperation(item("there", "a"));
        batch.upsertItemOperation(item("last", "a"));
        CosmosBatchResponse response = container.executeCosmosBatch(batch);
        assertFalse(response.isSuccessStatusCode());
        assertEquals(409, response.getStatusCode());
        assertEquals(List.of(424, 424, 409, 424), statuses(response));
        refused(404, 0, () -> container.readItem("new", key("a"), ObjectNode.class));
        refused(404, 0, () -> container.readItem("last", key("a"), ObjectNode.class));
        assertEquals(1, container.readItem("there", key("a"), ObjectNode.class).getItem().get("n").asInt());
    }

    @Test
    void preconditions() {
        CosmosContainer container = items();
        String first = container.createItem(item("1", "a"), key("a"), null).getETag();
        String second = container.replaceItem(item("1", "a"), "1", key("a"), null).getETag();
        CosmosBatch stale = batch("a");
        stale.replaceItemOperation("1", item("1", "a"), new CosmosBatchItemRequestOptions().setIfMatchETag(first));
        assertEquals(List.of(412), statuses(container.executeCosmosBatch(stale)));
        CosmosBatch unchanged = batch("a");
        unchanged.readItemOperation("1", new CosmosBatchItemRequestOptions().setIfNoneMatchETag(second));
        unchanged.replaceItemOperation("1", item("1", "a"), new CosmosBatchItemRequestOptions().setIfMatchETag(second));
        assertEquals(List.of(304, 200), statuses(container.executeCosmosBatch(unchanged)));
    }

    @Test
    void refusedBatchesCost() {
        CosmosContainer container = items();
        CosmosBatch wrong = batch("a");
        wrong.createItemOperation(item("", "a"));
        CosmosBatchResponse response = container.executeCosmosBatch(wrong);
        assertEquals(List.of(400), statuses(response));
        assertTrue(response.getRequestCharge() > 0);
    }

    /** A batch that reads is held to the session, as a read is. */
    @Test
    void sessionFromTheFuture() {
        CosmosContainer container = items();
        String token = container.createItem(item("1", "a"), key("a"), null).getSessionToken();
        String ahead = token.substring(0, token.lastIndexOf('#') + 1) + "999999999999";
        CosmosBatch reads = batch("a");
        reads.readItemOperation("1");
        refused(404, 1002, () -> container.executeCosmosBatch(reads, new CosmosBatchRequestOptions().setSessionToken(ahead)));
        CosmosBatch now = batch("a");
        now.readItemOperation("1");
        assertEquals(List.of(200), statuses(container.executeCosmosBatch(now, new CosmosBatchRequestOptions().setSessionToken(token))));
    }

    @Test
    void limits() {
        CosmosContainer container = items();
        CosmosBatch hundred = batch("a");
        for (int n = 0; n < 100; n++) {
            hundred.createItemOperation(item("" + n, "a"));
        }
        assertEquals(100, container.executeCosmosBatch(hundred).size());
        CosmosBatch more = batch("b");
        for (int n = 0; n < 101; n++) {
            more.createItemOperation(item("" + n, "b"));
        }
        refused(400, () -> container.executeCosmosBatch(more));
        CosmosBatch large = batch("c");
        for (int n = 0; n < 3; n++) {
            large.createItemOperation(item("" + n, "c").put("text", "x".repeat(1024 * 1024)));
        }
        refused(413, () -> container.executeCosmosBatch(large));
    }

    private static Map<String, Integer> run(CosmosContainer container, List<CosmosItemOperation> operations) {
        Map<String, Integer> statuses = new TreeMap<>();
        Iterable<CosmosBulkOperationResponse<Object>> responses = container.executeBulkOperations(operations);
        for (CosmosBulkOperationResponse<Object> response : responses) {
            CosmosBulkItemResponse result = response.getResponse();
            if (result == null) {
                throw new AssertionError(response.getException());
            }
            statuses.put((String) response.getOperation().getContext(), result.getStatusCode());
        }
        return statuses;
    }

    @Test
    void bulkOverManyPartitions() {
        String id = unique("wide");
        database.createContainer(id, "/pk", ThroughputProperties.createManualThroughput(30_000));
        CosmosContainer container = database.getContainer(id);
        List<CosmosItemOperation> creates = new ArrayList<>();
        for (int n = 0; n < 300; n++) {
            String name = "item" + n;
            creates.add(CosmosBulkOperations.getCreateItemOperation(item(name, "p" + n), key("p" + n), name));
        }
        Map<String, Integer> created = run(container, creates);
        assertEquals(300, created.size());
        assertTrue(created.values().stream().allMatch(status -> status == 201), created::toString);
        for (int n = 0; n < 300; n += 50) {
            assertEquals(200, container.readItem("item" + n, key("p" + n), ObjectNode.class).getStatusCode());
        }
        Map<String, Integer> mixed = run(container, List.of(
            CosmosBulkOperations.getCreateItemOperation(item("item1", "p1"), key("p1"), "item1"),
            CosmosBulkOperations.getUpsertItemOperation(item("item2", "p2").put("n", 2), key("p2"), "item2"),
            CosmosBulkOperations.getReadItemOperation("item3", key("p3"), "item3"),
            CosmosBulkOperations.getReplaceItemOperation("item4", item("item4", "p4"), key("p4"), "item4"),
            CosmosBulkOperations.getPatchItemOperation("item5", key("p5"), CosmosPatchOperations.create().set("/n", 1), "item5"),
            CosmosBulkOperations.getDeleteItemOperation("item6", key("p6"), "item6"),
            CosmosBulkOperations.getDeleteItemOperation("absent", key("p7"), "absent")));
        assertEquals(Map.of("item1", 409, "item2", 200, "item3", 200, "item4", 200, "item5", 200, "item6", 204, "absent", 404), mixed);
    }
}
