package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.PartitionKey;
import com.azure.cosmos.models.PartitionKeyBuilder;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class PartitionKeysTest extends Server {
    @ParameterizedTest
    @EnumSource(PartitionKeyDefinitionVersion.class)
    void everyKindOfKey(PartitionKeyDefinitionVersion version) {
        PartitionKeyDefinition definition = new PartitionKeyDefinition().setPaths(List.of("/pk")).setKind(PartitionKind.HASH).setVersion(version);
        CosmosContainer container = container(new CosmosContainerProperties(unique("k"), definition));
        String text = "k".repeat(1000);
        Map<String, PartitionKey> keys = new LinkedHashMap<>();
        keys.put("'pk':'a'", key("a"));
        keys.put("'pk':''", key(""));
        keys.put("'pk':'é日本😀'", key("é日本😀"));
        keys.put("'pk':'" + text + "'", key(text));
        keys.put("'pk':0", key(0));
        keys.put("'pk':1.0", key(1));
        keys.put("'pk':-12.5", key(-12.5));
        keys.put("'pk':0.1", key(0.1));
        keys.put("'pk':9007199254740991", key(9007199254740991L));
        keys.put("'pk':1.5e300", key(1.5e300));
        keys.put("'pk':true", key(true));
        keys.put("'pk':false", key(false));
        keys.put("'pk':null", new PartitionKey(null));
        keys.put("'other':1", PartitionKey.NONE);
        keys.forEach((property, key) -> {
            ObjectNode body = json("{'id':'1'," + property + "}");
            container.createItem(body, key, null);
            refused(409, 0, () -> container.createItem(body, key, null));
            assertNotNull(container.readItem("1", key, ObjectNode.class).getItem(), property);
            container.replaceItem(body, "1", key, null);
            refused(404, 0, () -> container.readItem("1", key("none of them"), ObjectNode.class));
        });
        // Each of them lives in a logical partition of its own.
        keys.forEach((property, key) -> container.deleteItem("1", key, null));
    }

    @Test
    void nestedAndQuotedPaths() {
        CosmosContainer nested = container(new CosmosContainerProperties(unique("n"), "/a/b"));
        nested.createItem(json("{'id':'1','a':{'b':'x'}}"), key("x"), null);
        assertNotNull(nested.readItem("1", key("x"), ObjectNode.class).getItem());
        CosmosContainer quoted = container(new CosmosContainerProperties(unique("q"), "/\"a b\"/c"));
        quoted.createItem(json("{'id':'1','a b':{'c':'x'}}"), key("x"), null);
        assertNotNull(quoted.readItem("1", key("x"), ObjectNode.class).getItem());
        CosmosContainer byId = container(new CosmosContainerProperties(unique("i"), "/id"));
        byId.createItem(json("{'id':'1'}"), key("1"), null);
        assertNotNull(byId.readItem("1", key("1"), ObjectNode.class).getItem());
    }

    @Test
    void hierarchicalKeys() {
        PartitionKeyDefinition definition = new PartitionKeyDefinition()
            .setPaths(List.of("/tenant", "/user", "/session")).setKind(PartitionKind.MULTI_HASH).setVersion(PartitionKeyDefinitionVersion.V2);
        CosmosContainer container = container(new CosmosContainerProperties(unique("h"), definition));
        Map<String, PartitionKey> keys = Map.of(
            "'user':'u','session':'s'", new PartitionKeyBuilder().add("t").add("u").add("s").build(),
            "'user':7,'session':true", new PartitionKeyBuilder().add("t").add(7).add(true).build(),
            "'user':null,'session':''", new PartitionKeyBuilder().add("t").addNullValue().add("").build());
        keys.forEach((properties, key) -> {
            ObjectNode body = json("{'id':'1','tenant':'t'," + properties + "}");
            assertEquals(201, container.createItem(body, key, null).getStatusCode());
            assertEquals("t", container.readItem("1", key, ObjectNode.class).getItem().get("tenant").asText());
            assertEquals(200, container.upsertItem(body).getStatusCode());
        });
        ObjectNode body = json("{'id':'2','tenant':'t','user':'u','session':'s'}");
        PartitionKey other = new PartitionKeyBuilder().add("t").add("u").add("other").build();
        refused(400, 1001, () -> container.createItem(body, other, null));
        PartitionKey partial = new PartitionKeyBuilder().add("t").add("u").build();
        refused(400, () -> container.deleteAllItemsByPartitionKey(partial, null));
        PartitionKey full = new PartitionKeyBuilder().add("t").add("u").add("s").build();
        container.deleteAllItemsByPartitionKey(full, null);
        refused(404, 0, () -> container.readItem("1", full, ObjectNode.class));
    }
}
