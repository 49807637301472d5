package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.CosmosException;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.PartitionKey;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.UUID;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.function.Executable;

/**
 * What every test class starts from: one client and one database, dropped at the end.
 *
 * <p>The suite runs in gateway mode and in direct mode ({@code ORRERY_SDK_MODE}), which is the client's default.
 *
 * <p>Expectations come from the client's documentation and the public REST reference; nothing here
 * knows how the server works inside.
 */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
abstract class Server {
    /** The key that every emulator of the service publishes and accepts on loopback. */
    static final String EMULATOR_KEY =
        "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

    private static final ObjectMapper MAPPER = new ObjectMapper();

    CosmosClient client;
    CosmosDatabase database;

    @BeforeAll
    void connect() {
        client = builder().buildClient();
        String id = unique("java");
        client.createDatabase(id);
        database = client.getDatabase(id);
    }

    @AfterAll
    void disconnect() {
        database.delete();
        client.close();
    }

    /** The plain HTTP address of the server. */
    static String plainEndpoint() {
        String address = System.getenv("ORRERY_ENDPOINT");
        if (address == null) {
            throw new IllegalStateException("ORRERY_ENDPOINT is not set: start the suite with ./run");
        }
        return address.replaceAll("/+$", "");
    }

    /** The address most tests use: TLS, as this client insists on by default. */
    static String endpoint() {
        String scheme = System.getenv().getOrDefault("ORRERY_SDK_SCHEME", "https");
        return plainEndpoint().replace("http://", scheme + "://");
    }

    static CosmosClientBuilder builder() {
        return inMode(new CosmosClientBuilder()
            .endpoint(endpoint())
            .key(EMULATOR_KEY)
            .contentResponseOnWriteEnabled(true));
    }

    /** Sets the mode that is tested. */
    static CosmosClientBuilder inMode(CosmosClientBuilder builder) {
        return isDirect() ? builder.directMode() : builder.gatewayMode();
    }

    static boolean isDirect() {
        return "direct".equals(System.getenv("ORRERY_SDK_MODE"));
    }

    static String unique(String prefix) {
        return prefix + "-" + UUID.randomUUID().toString().substring(0, 13);
    }

    CosmosContainer container(CosmosContainerProperties properties) {
        database.createContainer(properties);
        return database.getContainer(properties.getId());
    }

    /** A new container keyed by /pk. */
    CosmosContainer items() {
        return container(new CosmosContainerProperties(unique("items"), "/pk"));
    }

    static PartitionKey key(Object value) {
        return new PartitionKey(value);
    }

    static ObjectNode json(String text) {
        try {
            return (ObjectNode) MAPPER.readTree(text.replace('\'', '"'));
        } catch (JsonProcessingException problem) {
            throw new IllegalArgumentException(text, problem);
        }
    }

    static ObjectNode item(String id, String pk) {
        return MAPPER.createObjectNode().put("id", id).put("pk", pk);
    }

    static void eventually(String what, BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + Duration.ofMinutes(2).toNanos();
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, what);
            Thread.sleep(50);
        }
    }

    /** Wants a refusal with this status; a sub-status of 0 means none. */
    static CosmosException refused(int status, int subStatus, Executable call) {
        CosmosException problem = assertThrows(CosmosException.class, call);
        assertEquals(status + "/" + subStatus, problem.getStatusCode() + "/" + problem.getSubStatusCode(), problem::getMessage);
        return problem;
    }

    static CosmosException refused(int status, Executable call) {
        CosmosException problem = assertThrows(CosmosException.class, call);
        assertEquals(status, problem.getStatusCode(), problem::getMessage);
        return problem;
    }

    /** Wants the client to give up while it starts, because the account cannot be read. */
    static void refusedAtStart(int status, CosmosClientBuilder builder) {
        RuntimeException problem = assertThrows(RuntimeException.class, () -> builder.buildClient().close());
        Throwable cause = problem;
        while (cause != null && !(cause instanceof CosmosException)) {
            cause = cause.getCause();
        }
        assertEquals(status, assertInstanceOf(CosmosException.class, cause, problem::toString).getStatusCode());
    }
}
