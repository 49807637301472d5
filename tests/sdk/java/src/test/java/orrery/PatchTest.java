package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosItemResponse;
import com.azure.cosmos.models.CosmosPatchItemRequestOptions;
import com.azure.cosmos.models.CosmosPatchOperations;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.junit.jupiter.api.Test;

class PatchTest extends Server {
    private static CosmosPatchOperations patch() {
        return CosmosPatchOperations.create();
    }

    @Test
    void everyOperation() {
        CosmosContainer container = items();
        container.createItem(json("{'id':'1','pk':'a','name':'x','count':40,'half':0.5,'old':true,'from':5,'list':['a','c'],'sub':{'p':1}}"), key("a"), null);
        CosmosPatchOperations operations = patch()
            .set("/name", "y").add("/list/1", "b").add("/list/-", "d").replace("/sub/p", 2).add("/sub/q", List.of(1, 2))
            .remove("/old").increment("/count", 2).increment("/half", 0.25).increment("/fresh", -7).move("/from", "/to");
        CosmosItemResponse<ObjectNode> patched = container.patchItem("1", key("a"), operations, ObjectNode.class);
        assertEquals(200, patched.getStatusCode());
        ObjectNode value = patched.getItem();
        assertEquals("y", value.get("name").asText());
        assertEquals("[\"a\",\"b\",\"c\",\"d\"]", value.get("list").toString());
        assertEquals("{\"p\":2,\"q\":[1,2]}", value.get("sub").toString());
        assertEquals(42, value.get("count").asInt());
        assertEquals(0.75, value.get("half").asDouble());
        assertEquals(-7, value.get("fresh").asInt());
        assertEquals(5, value.get("to").asInt());
        assertFalse(value.has("old") || value.has("from"));
    }

    @Test
    void filterPredicate() {
        CosmosContainer container = items();
        container.createItem(item("1", "a").put("n", 1), key("a"), null);
        CosmosPatchItemRequestOptions two = new CosmosPatchItemRequestOptions().setFilterPredicate("from c where c.n = 2");
        refused(412, 0, () -> container.patchItem("1", key("a"), patch().set("/n", 5), two, ObjectNode.class));
        CosmosPatchItemRequestOptions one = new CosmosPatchItemRequestOptions().setFilterPredicate("from c where c.n = 1");
        one.setContentResponseOnWriteEnabled(true);
        assertEquals(5, container.patchItem("1", key("a"), patch().set("/n", 5), one, ObjectNode.class).getItem().get("n").asInt());
    }

    @Test
    void refused() {
        CosmosContainer container = items();
        String before = container.createItem(json("{'id':'1','pk':'a','s':'text','list':[1]}"), key("a"), null).getETag();
        CosmosPatchOperations eleven = patch();
        for (int n = 0; n < 11; n++) {
            eleven.set("/n" + n, n);
        }
        List<CosmosPatchOperations> wrong = List.of(
            patch().set("/id", "2"), patch().set("/pk", "b"), patch().set("/_ts", 1), patch().add("/no/such", 1), patch().replace("/none", 1),
            patch().remove("/none"), patch().increment("/s", 1), patch().add("/list/5", 1), eleven, patch().set("/s", "changed").remove("/none"));
        for (CosmosPatchOperations operations : wrong) {
            refused(400, 0, () -> container.patchItem("1", key("a"), operations, ObjectNode.class));
        }
        assertEquals(before, container.readItem("1", key("a"), ObjectNode.class).getETag());
        refused(404, 0, () -> container.patchItem("absent", key("a"), patch().set("/n", 1), ObjectNode.class));
    }
}
