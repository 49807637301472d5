package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.GatewayConnectionConfig;
import com.azure.cosmos.Http2ConnectionConfig;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Base64;
import org.junit.jupiter.api.Test;

class ConnectTest extends Server {
    private void roundTrip(CosmosClientBuilder builder) {
        try (CosmosClient other = builder.buildClient()) {
            CosmosContainer container = items();
            CosmosContainer same = other.getDatabase(database.getId()).getContainer(container.getId());
            same.createItem(item("1", "a").put("n", 1.5), key("a"), null);
            assertEquals(1.5, same.readItem("1", key("a"), ObjectNode.class).getItem().get("n").asDouble());
        }
    }

    @Test
    void tlsWithVerifiedCertificate() {
        roundTrip(builder());
    }

    @Test
    void tlsByHostName() {
        roundTrip(builder().endpoint(endpoint().replace("127.0.0.1", "localhost")));
    }

    @Test
    void plainHttp() {
        roundTrip(builder().endpoint(plainEndpoint()));
    }

    @Test
    void trailingSlash() {
        roundTrip(builder().endpoint(endpoint() + "/"));
    }

    @Test
    void http2() {
        GatewayConnectionConfig config = new GatewayConnectionConfig();
        config.setHttp2ConnectionConfig(new Http2ConnectionConfig().setEnabled(true));
        roundTrip(builder().gatewayMode(config));
    }

    @Test
    void endpointDiscoveryOff() {
        roundTrip(builder().endpointDiscoveryEnabled(false));
    }

    @Test
    void asynchronousClient() {
        try (CosmosAsyncClient other = builder().buildAsyncClient()) {
            String id = unique("java");
            assertEquals(201, other.createDatabase(id).block().getStatusCode());
            assertEquals(204, other.getDatabase(id).delete().block().getStatusCode());
        }
    }

    @Test
    void wrongKeyIsRefused() {
        String wrong = Base64.getEncoder().encodeToString(new byte[64]);
        refusedAtStart(401, builder().key(wrong));
    }
}
