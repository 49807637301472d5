package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncUser;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.CosmosPermissionProperties;
import com.azure.cosmos.models.CosmosUserProperties;
import com.azure.cosmos.models.PermissionMode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class UsersTest extends Server {
    private CosmosAsyncClient async;

    @BeforeAll
    void connectAsync() {
        async = builder().buildAsyncClient();
    }

    @AfterAll
    void disconnectAsync() {
        async.close();
    }

    private CosmosAsyncUser user() {
        String id = unique("user");
        database.createUser(new CosmosUserProperties().setId(id));
        return async.getDatabase(database.getId()).getUser(id);
    }

    private static CosmosPermissionProperties permission(String id, CosmosContainer container, PermissionMode mode) {
        return new CosmosPermissionProperties().setId(id).setContainerName(container.getId()).setPermissionMode(mode);
    }

    private static CosmosClientBuilder withToken(String token) {
        return inMode(new CosmosClientBuilder().endpoint(endpoint()).resourceToken(token).contentResponseOnWriteEnabled(true));
    }

    private CosmosContainer as(CosmosClient holder, CosmosContainer container) {
        return holder.getDatabase(database.getId()).getContainer(container.getId());
    }

    @Test
    void userLifeCycle() {
        String id = unique("user");
        assertEquals(201, database.createUser(new CosmosUserProperties().setId(id)).getStatusCode());
        refused(409, () -> database.createUser(new CosmosUserProperties().setId(id)));
        assertEquals(200, database.upsertUser(new CosmosUserProperties().setId(id)).getStatusCode());
        assertEquals(id, database.getUser(id).read().getProperties().getId());
        assertTrue(database.readAllUsers().stream().anyMatch(each -> each.getId().equals(id)));
        String renamed = unique("renamed");
        CosmosUserProperties properties = database.getUser(id).read().getProperties();
        assertEquals(renamed, database.getUser(id).replace(properties.setId(renamed)).getProperties().getId());
        refused(404, () -> database.getUser(id).read());
        assertEquals(204, database.getUser(renamed).delete().getStatusCode());
        refused(404, () -> database.getUser(renamed).read());
    }

    @Test
    void permissionLifeCycle() {
        CosmosContainer container = items();
        CosmosContainer another = items();
        CosmosAsyncUser user = user();
        assertEquals(201, user.createPermission(permission("p", container, PermissionMode.READ), null).block().getStatusCode());
        refused(409, () -> user.createPermission(permission("p", another, PermissionMode.READ), null).block());
        refused(409, () -> user.createPermission(permission("q", container, PermissionMode.ALL), null).block());
        CosmosPermissionProperties read = user.getPermission("p").read(null).block().getProperties();
        assertEquals(PermissionMode.READ, read.getPermissionMode());
        assertEquals(container.getId(), read.getContainerName());
        assertTrue(read.getToken().startsWith("type=resource&ver=1"), read::getToken);
        CosmosPermissionProperties replaced = user.getPermission("p").replace(read.setPermissionMode(PermissionMode.ALL), null).block().getProperties();
        assertEquals(PermissionMode.ALL, replaced.getPermissionMode());
        assertEquals(200, user.upsertPermission(permission("p", container, PermissionMode.READ), null).block().getStatusCode());
        List<CosmosPermissionProperties> all = user.readAllPermissions().collectList().block();
        assertEquals(List.of("p"), all.stream().map(CosmosPermissionProperties::getId).toList());
        assertEquals(204, user.getPermission("p").delete(null).block().getStatusCode());
        refused(404, () -> user.getPermission("p").read(null).block());
    }

    @Test
    void readTokenReadsOnly() {
        CosmosContainer container = items();
        CosmosContainer hidden = items();
        container.createItem(item("1", "a"), key("a"), null);
        hidden.createItem(item("1", "a"), key("a"), null);
        String token = user().createPermission(permission("p", container, PermissionMode.READ), null).block().getProperties().getToken();
        try (CosmosClient holder = withToken(token).buildClient()) {
            CosmosContainer granted = as(holder, container);
            assertEquals("1", granted.readItem("1", key("a"), ObjectNode.class).getItem().get("id").asText());
            refused(403, () -> granted.createItem(item("2", "a"), key("a"), null));
            refused(403, () -> granted.deleteItem("1", key("a"), null));
            refused(403, () -> as(holder, hidden).readItem("1", key("a"), ObjectNode.class));
            refused(403, () -> holder.createDatabase(unique("java")));
        }
    }

    @Test
    void allTokenWrites() {
        CosmosContainer container = items();
        CosmosPermissionProperties permission = user().createPermission(permission("p", container, PermissionMode.ALL), null).block().getProperties();
        try (CosmosClient holder = withToken(permission.getToken()).buildClient()) {
            CosmosContainer granted = as(holder, container);
            granted.createItem(item("1", "a"), key("a"), null);
            granted.upsertItem(item("1", "a").put("n", 1), key("a"), null);
            granted.deleteItem("1", key("a"), null);
        }
    }

    @Test
    void tokenForOneKey() {
        CosmosContainer container = items();
        container.createItem(item("1", "a"), key("a"), null);
        container.createItem(item("1", "b"), key("b"), null);
        CosmosPermissionProperties narrow = permission("p", container, PermissionMode.ALL).setResourcePartitionKey(key("a"));
        String token = user().createPermission(narrow, null).block().getProperties().getToken();
        try (CosmosClient holder = withToken(token).buildClient()) {
            CosmosContainer granted = as(holder, container);
            assertFalse(granted.readItem("1", key("a"), ObjectNode.class).getItem().isEmpty());
            granted.createItem(item("2", "a"), key("a"), null);
            refused(403, () -> granted.readItem("1", key("b"), ObjectNode.class));
            refused(403, () -> granted.createItem(item("2", "b"), key("b"), null));
        }
    }

    @Test
    void brokenTokenIsRefused() {
        CosmosContainer container = items();
        String token = user().createPermission(permission("p", container, PermissionMode.READ), null).block().getProperties().getToken();
        int middle = token.indexOf("sig=") + 10;
        String broken = token.substring(0, middle) + (token.charAt(middle) == 'A' ? 'B' : 'A') + token.substring(middle + 1);
        refusedAtStart(401, withToken(broken));
    }
}
