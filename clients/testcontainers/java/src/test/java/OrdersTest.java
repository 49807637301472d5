import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.cosmos.CosmosClient;
import com.azure.cosmos.CosmosClientBuilder;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.PartitionKey;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.testcontainers.junit.jupiter.Container;
import org.testcontainers.junit.jupiter.Testcontainers;

@Testcontainers
class OrdersTest {
    @Container
    private static final OrreryContainer SERVER = new OrreryContainer("shop/orders:/customer");

    @Test
    void anOrderIsFoundAgain() {
        CosmosClientBuilder builder =
                new CosmosClientBuilder().endpoint(SERVER.endpoint()).key(OrreryContainer.KEY).gatewayMode();
        try (CosmosClient client = builder.buildClient()) {
            CosmosContainer orders = client.getDatabase("shop").getContainer("orders");
            orders.createItem(Map.of("id", "1", "customer", "ann", "total", 12));
            Map<?, ?> found = orders.readItem("1", new PartitionKey("ann"), Map.class).getItem();
            assertEquals(12, found.get("total"));
        }
    }
}
