package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.models.ThroughputResponse;
import java.util.List;
import org.junit.jupiter.api.Test;

class ThroughputTest extends Server {
    private static ThroughputProperties manual(int value) {
        return ThroughputProperties.createManualThroughput(value);
    }

    private static ThroughputProperties autoscale(int value) {
        return ThroughputProperties.createAutoscaledThroughput(value);
    }

    @Test
    void defaultOfContainer() {
        assertEquals(400, items().readThroughput().getProperties().getManualThroughput());
    }

    @Test
    void databaseWithoutThroughput() {
        refused(400, () -> database.readThroughput());
    }

    @Test
    void sharedThroughput() {
        String id = unique("java");
        client.createDatabase(id, manual(600));
        CosmosDatabase shared = client.getDatabase(id);
        assertEquals(600, shared.readThroughput().getProperties().getManualThroughput());
        assertEquals(800, shared.replaceThroughput(manual(800)).getProperties().getManualThroughput());
        shared.createContainer("c", "/pk");
        refused(400, () -> shared.getContainer("c").readThroughput());
        shared.delete();
    }

    @Test
    void replaceManualThroughput() {
        String id = unique("c");
        database.createContainer(id, "/pk", manual(500));
        CosmosContainer container = database.getContainer(id);
        container.replaceThroughput(manual(1000));
        ThroughputResponse read = container.readThroughput();
        assertEquals(1000, read.getProperties().getManualThroughput());
        assertTrue(read.getMinThroughput() >= 400);
        assertFalse(read.isReplacePending());
        refused(400, () -> container.replaceThroughput(manual(100)));
        refused(400, () -> container.replaceThroughput(manual(450)));
    }

    @Test
    void autoscaleThroughput() {
        String id = unique("c");
        database.createContainer(id, "/pk", autoscale(4000));
        CosmosContainer container = database.getContainer(id);
        assertEquals(4000, container.readThroughput().getProperties().getAutoscaleMaxThroughput());
        container.replaceThroughput(autoscale(5000));
        assertEquals(5000, container.readThroughput().getProperties().getAutoscaleMaxThroughput());
    }

    @Test
    void refusedAtCreation() {
        for (ThroughputProperties throughput : List.of(manual(399), manual(450), autoscale(500), autoscale(1500))) {
            refused(400, () -> database.createContainer(unique("c"), "/pk", throughput));
        }
    }
}
