package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.CosmosDatabase;
import com.azure.cosmos.models.CompositePath;
import com.azure.cosmos.models.CompositePathSortOrder;
import com.azure.cosmos.models.ConflictResolutionMode;
import com.azure.cosmos.models.ConflictResolutionPolicy;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosContainerRequestOptions;
import com.azure.cosmos.models.CosmosContainerResponse;
import com.azure.cosmos.models.CosmosDatabaseProperties;
import com.azure.cosmos.models.CosmosDatabaseResponse;
import com.azure.cosmos.models.ExcludedPath;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.IncludedPath;
import com.azure.cosmos.models.IndexingMode;
import com.azure.cosmos.models.IndexingPolicy;
import com.azure.cosmos.models.PartitionKeyDefinition;
import com.azure.cosmos.models.PartitionKeyDefinitionVersion;
import com.azure.cosmos.models.PartitionKind;
import com.azure.cosmos.models.SpatialSpec;
import com.azure.cosmos.models.SpatialType;
import com.azure.cosmos.models.ThroughputProperties;
import com.azure.cosmos.models.UniqueKey;
import com.azure.cosmos.models.UniqueKeyPolicy;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ResourcesTest extends Server {
    @Test
    void databaseLifeCycle() {
        String id = unique("java");
        CosmosDatabaseResponse created = client.createDatabase(id);
        assertEquals(201, created.getStatusCode());
        assertTrue(created.getRequestCharge() > 0);
        assertNotNull(created.getActivityId());
        CosmosDatabaseProperties properties = created.getProperties();
        assertEquals(id, properties.getId());
        assertNotNull(properties.getETag());
        assertNotNull(properties.getResourceId());
        assertNotNull(properties.getTimestamp());
        refused(409, () -> client.createDatabase(id));
        assertEquals(200, client.createDatabaseIfNotExists(id).getStatusCode());

        CosmosDatabase found = client.getDatabase(id);
        assertEquals(properties.getResourceId(), found.read().getProperties().getResourceId());
        assertEquals(204, found.delete().getStatusCode());
        refused(404, 0, found::read);
        refused(404, 0, found::delete);
    }

    @Test
    void listDatabases() {
        String id = unique("java");
        client.createDatabaseIfNotExists(id);
        assertTrue(client.readAllDatabases().stream().anyMatch(each -> each.getId().equals(id)));
        List<String> found = client.queryDatabases("SELECT * FROM root r WHERE r.id = '" + id + "'", null)
            .stream().map(CosmosDatabaseProperties::getId).toList();
        assertEquals(List.of(id), found);
        client.getDatabase(id).delete();
    }

    @Test
    void containerLifeCycle() {
        String id = unique("c");
        CosmosContainerResponse created = database.createContainer(id, "/pk");
        assertEquals(201, created.getStatusCode());
        CosmosContainerProperties properties = created.getProperties();
        assertEquals(List.of("/pk"), properties.getPartitionKeyDefinition().getPaths());
        assertEquals(PartitionKind.HASH, properties.getPartitionKeyDefinition().getKind());
        // This client leaves the version out, which means the first one.
        assertNotEquals(PartitionKeyDefinitionVersion.V2, properties.getPartitionKeyDefinition().getVersion());
        assertEquals(IndexingMode.CONSISTENT, properties.getIndexingPolicy().getIndexingMode());
        assertTrue(properties.getIndexingPolicy().isAutomatic());
        assertEquals(List.of("/*"), properties.getIndexingPolicy().getIncludedPaths().stream().map(IncludedPath::getPath).toList());
        assertEquals(List.of("/\"_etag\"/?"), properties.getIndexingPolicy().getExcludedPaths().stream().map(ExcludedPath::getPath).toList());
        refused(409, () -> database.createContainer(id, "/pk"));
        assertEquals(200, database.createContainerIfNotExists(id, "/pk").getStatusCode());

        CosmosContainer container = database.getContainer(id);
        CosmosContainerResponse read = container.read(new CosmosContainerRequestOptions().setQuotaInfoEnabled(true));
        assertEquals(properties.getResourceId(), read.getProperties().getResourceId());
        assertEquals(100, read.getIndexTransformationProgress());
        assertEquals(204, container.delete().getStatusCode());
        refused(404, container::read);
    }

    @Test
    void listContainersInPages() {
        String id = unique("java");
        client.createDatabase(id);
        CosmosDatabase many = client.getDatabase(id);
        Set<String> wanted = Set.of("one", "two", "three", "four", "five");
        wanted.forEach(name -> many.createContainer(name, "/pk"));
        List<FeedResponse<CosmosContainerProperties>> pages = many.readAllContainers().streamByPage(2).toList();
        assertTrue(pages.size() >= 3, () -> pages.size() + " pages");
        Set<String> found = pages.stream().flatMap(page -> page.getResults().stream()).map(CosmosContainerProperties::getId).collect(Collectors.toSet());
        assertEquals(wanted, found);
        // The listing resumes from a continuation.
        String continuation = pages.get(0).getContinuationToken();
        long rest = many.readAllContainers().streamByPage(continuation, 2).mapToLong(page -> page.getResults().size()).sum();
        assertEquals(5 - pages.get(0).getResults().size(), rest);
        many.delete();
    }

    @ParameterizedTest
    @ValueSource(strings = {"a#b", "a?b", "a/b", "a\\b", "ends "})
    void namesThatAreRefused(String id) {
        try {
            client.createDatabase(id);
            throw new AssertionError("created " + id);
        } catch (IllegalArgumentException byTheClient) {
            // The client checks some characters itself.
        } catch (com.azure.cosmos.CosmosException byTheServer) {
            assertEquals(400, byTheServer.getStatusCode());
        }
    }

    @Test
    void policies() {
        IndexingPolicy policy = new IndexingPolicy()
            .setIncludedPaths(List.of(new IncludedPath("/*")))
            .setExcludedPaths(List.of(new ExcludedPath("/blob/*")))
            .setCompositeIndexes(List.of(List.of(
                new CompositePath().setPath("/a").setOrder(CompositePathSortOrder.ASCENDING),
                new CompositePath().setPath("/b").setOrder(CompositePathSortOrder.DESCENDING))))
            .setSpatialIndexes(List.of(new SpatialSpec().setPath("/place/*").setSpatialTypes(List.of(SpatialType.POINT))));
        CosmosContainerProperties properties = new CosmosContainerProperties(unique("p"), "/pk")
            .setIndexingPolicy(policy)
            .setUniqueKeyPolicy(new UniqueKeyPolicy().setUniqueKeys(List.of(new UniqueKey(List.of("/email", "/team/name")))))
            .setDefaultTimeToLiveInSeconds(3600)
            .setConflictResolutionPolicy(ConflictResolutionPolicy.createLastWriterWinsPolicy("/rank"));
        CosmosContainerProperties read = container(properties).read().getProperties();
        assertEquals(3600, read.getDefaultTimeToLiveInSeconds());
        assertEquals(List.of("/email", "/team/name"), read.getUniqueKeyPolicy().getUniqueKeys().get(0).getPaths());
        assertEquals(ConflictResolutionMode.LAST_WRITER_WINS, read.getConflictResolutionPolicy().getMode());
        assertEquals("/rank", read.getConflictResolutionPolicy().getConflictResolutionPath());
        List<CompositePath> composite = read.getIndexingPolicy().getCompositeIndexes().get(0);
        assertEquals("/b", composite.get(1).getPath());
        assertEquals(CompositePathSortOrder.DESCENDING, composite.get(1).getOrder());
        assertEquals("/place/*", read.getIndexingPolicy().getSpatialIndexes().get(0).getPath());
        assertTrue(read.getIndexingPolicy().getExcludedPaths().stream().anyMatch(path -> path.getPath().equals("/blob/*")));
    }

    @Test
    void indexingModeNone() {
        IndexingPolicy none = new IndexingPolicy().setIndexingMode(IndexingMode.NONE).setAutomatic(false);
        CosmosContainer container = container(new CosmosContainerProperties(unique("n"), "/pk").setIndexingPolicy(none));
        assertEquals(IndexingMode.NONE, container.read().getProperties().getIndexingPolicy().getIndexingMode());
        container.createItem(item("1", "a"), key("a"), null);
        container.readItem("1", key("a"), ObjectNode.class);
    }

    /** Lazy indexing is history: the service takes the word and indexes consistently. */
    @Test
    void indexingModeLazy() {
        IndexingPolicy lazy = new IndexingPolicy().setIndexingMode(IndexingMode.LAZY);
        CosmosContainer container = container(new CosmosContainerProperties(unique("l"), "/pk").setIndexingPolicy(lazy));
        assertEquals(IndexingMode.CONSISTENT, container.read().getProperties().getIndexingPolicy().getIndexingMode());
    }

    @Test
    void replaceContainer() {
        CosmosContainer container = items();
        CosmosContainerProperties properties = container.read().getProperties();
        String before = properties.getETag();
        properties.setDefaultTimeToLiveInSeconds(-1);
        properties.setIndexingPolicy(new IndexingPolicy()
            .setIncludedPaths(List.of(new IncludedPath("/*"))).setExcludedPaths(List.of(new ExcludedPath("/skip/*"))));
        CosmosContainerResponse replaced = container.replace(properties);
        assertEquals(200, replaced.getStatusCode());
        assertEquals(-1, replaced.getProperties().getDefaultTimeToLiveInSeconds());
        assertTrue(replaced.getProperties().getIndexingPolicy().getExcludedPaths().stream().anyMatch(path -> path.getPath().equals("/skip/*")));
        assertNotEquals(before, replaced.getProperties().getETag());
        properties.setPartitionKeyDefinition(new PartitionKeyDefinition().setPaths(List.of("/another")));
        refused(400, () -> container.replace(properties));
    }

    @Test
    void replaceContainerOnlyIfUnchanged() {
        CosmosContainer container = items();
        CosmosContainerProperties properties = container.read().getProperties();
        CosmosContainerRequestOptions unchanged = new CosmosContainerRequestOptions().setIfMatchETag(properties.getETag());
        container.replace(properties.setDefaultTimeToLiveInSeconds(60), unchanged);
        refused(412, () -> container.replace(properties.setDefaultTimeToLiveInSeconds(90), unchanged));
    }

    @Test
    void hierarchicalContainer() {
        PartitionKeyDefinition definition = new PartitionKeyDefinition()
            .setPaths(List.of("/a", "/b", "/c")).setKind(PartitionKind.MULTI_HASH).setVersion(PartitionKeyDefinitionVersion.V2);
        CosmosContainer container = container(new CosmosContainerProperties(unique("h"), definition));
        PartitionKeyDefinition read = container.read().getProperties().getPartitionKeyDefinition();
        assertEquals(PartitionKind.MULTI_HASH, read.getKind());
        assertEquals(List.of("/a", "/b", "/c"), read.getPaths());
        assertEquals(PartitionKeyDefinitionVersion.V2, read.getVersion());
        definition.setPaths(List.of("/a", "/b", "/c", "/d"));
        refused(400, () -> database.createContainer(new CosmosContainerProperties(unique("f"), definition)));
    }

    @Test
    void recreatedContainerIsEmpty() {
        String id = unique("c");
        String first = database.createContainer(id, "/pk").getProperties().getResourceId();
        CosmosContainer container = database.getContainer(id);
        container.createItem(item("1", "a"), key("a"), null);
        container.delete();
        String second = database.createContainer(id, "/pk").getProperties().getResourceId();
        assertNotEquals(first, second);
        refused(404, () -> container.readItem("1", key("a"), ObjectNode.class));
        container.createItem(item("1", "a"), key("a"), null);
    }

    @Test
    void feedRanges() {
        String small = unique("small");
        String large = unique("large");
        database.createContainer(small, "/pk");
        database.createContainer(large, "/pk", ThroughputProperties.createManualThroughput(30_000));
        assertEquals(1, database.getContainer(small).getFeedRanges().size());
        List<FeedRange> ranges = database.getContainer(large).getFeedRanges();
        assertTrue(ranges.size() >= 3, () -> ranges.toString());
        assertFalse(ranges.get(0).toString().isEmpty());
    }
}
