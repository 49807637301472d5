package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedPolicy;
import com.azure.cosmos.models.ChangeFeedProcessorItem;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosChangeFeedRequestOptions;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.FeedRange;
import com.azure.cosmos.models.FeedResponse;
import com.azure.cosmos.models.ThroughputProperties;
import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;

/** The change feed of both modes, read by pages and by processors that keep their leases in a container. */
class ChangeFeedTest extends Server {
    private static final String PROBE = "probe";

    private CosmosContainerProperties keepingVersions(String prefix) {
        return new CosmosContainerProperties(unique(prefix), "/pk")
            .setChangeFeedPolicy(ChangeFeedPolicy.createAllVersionsAndDeletesPolicy(Duration.ofMinutes(60)));
    }

    /** What happened to items: "create 1", "replace 2", "delete", each known by its place in the log. */
    private static final class Story {
        private final Map<String, Map<Long, String>> items = new HashMap<>();

        /** A processor may see a change again after it moved; what was seen first counts. */
        synchronized void add(String id, long lsn, String what) {
            items.computeIfAbsent(id, key -> new LinkedHashMap<>()).putIfAbsent(lsn, what);
        }

        synchronized List<String> of(String id) {
            return new ArrayList<>(items.getOrDefault(id, Map.of()).values());
        }

        /** An entry of all-versions mode. */
        void add(JsonNode current, JsonNode metadata) {
            String operation = metadata.get("operationType").asText();
            boolean deleted = operation.equals("delete");
            String id = (deleted ? metadata : current).get("id").asText();
            add(id, metadata.get("lsn").asLong(), deleted ? operation : operation + " " + current.get("n").asInt());
        }
    }

    private static JsonNode numbered(String id, int n) {
        return item(id, "pk-" + id).put("n", n);
    }

    @Test
    void pagesOfAllVersions() {
        CosmosContainer container = container(keepingVersions("versions"));
        CosmosChangeFeedRequestOptions now =
            CosmosChangeFeedRequestOptions.createForProcessingFromNow(FeedRange.forFullRange()).allVersionsAndDeletes();
        String continuation = null;
        for (FeedResponse<JsonNode> page : container.queryChangeFeed(now, JsonNode.class).iterableByPage()) {
            assertEquals(0, page.getResults().size());
            continuation = page.getContinuationToken();
        }
        assertNotNull(continuation);
        container.createItem(numbered("a", 1));
        container.upsertItem(numbered("a", 2));
        container.upsertItem(numbered("b", 1));
        container.deleteItem("a", key("pk-a"), null);
        CosmosChangeFeedRequestOptions later =
            CosmosChangeFeedRequestOptions.createForProcessingFromContinuation(continuation).allVersionsAndDeletes();
        Story story = new Story();
        for (JsonNode change : container.queryChangeFeed(later, JsonNode.class)) {
            story.add(change.get("current"), change.get("metadata"));
        }
        assertEquals(List.of("create 1", "replace 2", "delete"), story.of("a"));
        assertEquals(List.of("create 1"), story.of("b"));

        // Only containers that keep versions can tell them.
        CosmosContainer plain = items();
        refused(400, () -> plain.queryChangeFeed(now, JsonNode.class).stream().count());
    }

    /** One of the three kinds of processors, with a container of its own for its leases. */
    private ChangeFeedProcessor processor(
        CosmosAsyncClient reader, String feed, boolean fromBeginning, UnaryOperator<ChangeFeedProcessorBuilder> handler) {
        CosmosAsyncContainer leases = reader.getDatabase(database.getId())
            .getContainer(container(new CosmosContainerProperties(unique("leases"), "/id")).getId());
        ChangeFeedProcessorOptions options = new ChangeFeedProcessorOptions()
            .setFeedPollDelay(Duration.ofMillis(100))
            .setLeaseAcquireInterval(Duration.ofMillis(500))
            .setLeaseRenewInterval(Duration.ofSeconds(1))
            .setStartFromBeginning(fromBeginning)
            .setMaxItemCount(7);
        ChangeFeedProcessorBuilder builder = new ChangeFeedProcessorBuilder()
            .hostName("host")
            .options(options)
            .feedContainer(reader.getDatabase(database.getId()).getContainer(feed))
            .leaseContainer(leases);
        return handler.apply(builder).buildChangeFeedProcessor();
    }

    @Test
    void processorsAcrossASplit() throws InterruptedException {
        CosmosContainer container = container(keepingVersions("feed"));
        Story all = new Story();
        Story latest = new Story();
        Story flat = new Story();
        try (CosmosAsyncClient reader = builder().buildAsyncClient()) {
            List<ChangeFeedProcessor> processors = List.of(
                processor(reader, container.getId(), false, builder -> builder.handleAllVersionsAndDeletesChanges(
                    (List<ChangeFeedProcessorItem> changes) -> changes.forEach(change -> {
                        JsonNode whole = change.toJsonNode();
                        all.add(whole.get("current"), whole.get("metadata"));
                    }))),
                processor(reader, container.getId(), true, builder -> builder.handleLatestVersionChanges(
                    (List<ChangeFeedProcessorItem> changes) -> changes.forEach(change -> latest.add(
                        change.getCurrent().get("id").asText(),
                        change.getChangeFeedMetaData().getLogSequenceNumber(),
                        change.getCurrent().get("n").asText())))),
                processor(reader, container.getId(), true, builder -> builder.handleChanges(
                    (List<JsonNode> changes) -> changes.forEach(change -> flat.add(
                        change.get("id").asText(), change.get("_lsn").asLong(), change.get("n").asText())))));
            for (ChangeFeedProcessor processor : processors) {
                processor.start().block();
            }
            // All versions are told from now on: that has begun once a first change arrives.
            eventually("the processor of all versions begins", () -> {
                container.upsertItem(numbered(PROBE, 0));
                return !all.of(PROBE).isEmpty();
            });

            work(container, 0);
            container.replaceThroughput(ThroughputProperties.createManualThroughput(20_000));
            work(container, 1);
            eventually("the container splits", () -> container.getFeedRanges().size() == 2);
            work(container, 2);

            eventually("the last change arrives", () -> arrived(all, latest, flat));
            for (int at = 0; at < 20; at++) {
                for (int round = 0; round < 3; round++) {
                    String id = round + "-" + at;
                    boolean deleted = at % 4 == 0;
                    List<String> expected = deleted ? List.of("create 1", "replace 2", "delete") : List.of("create 1", "replace 2");
                    assertEquals(expected, all.of(id), id);
                    for (Story versions : List.of(latest, flat)) {
                        List<String> seen = versions.of(id);
                        assertEquals(seen.stream().sorted().toList(), seen, id);
                        assertTrue(deleted || seen.get(seen.size() - 1).equals("2"), id + " " + seen);
                    }
                }
            }
            for (ChangeFeedProcessor processor : processors) {
                // Leases are written after the changes were handled.
                eventually("nothing is left to read", () -> processor.getCurrentState().block().stream()
                    .allMatch(state -> state.getEstimatedLag() == 0));
                assertEquals(2, processor.getCurrentState().block().size());
                processor.stop().block();
            }
        }
    }

    /** Twenty items are created and replaced; every fourth is deleted. */
    private static void work(CosmosContainer container, int round) {
        for (int at = 0; at < 20; at++) {
            String id = round + "-" + at;
            container.createItem(numbered(id, 1));
            container.upsertItem(numbered(id, 2));
            if (at % 4 == 0) {
                container.deleteItem(id, key("pk-" + id), null);
            }
        }
    }

    private static boolean arrived(Story all, Story latest, Story flat) {
        for (int round = 0; round < 3; round++) {
            for (int at = 0; at < 20; at++) {
                String id = round + "-" + at;
                boolean deleted = at % 4 == 0;
                boolean there = all.of(id).size() == (deleted ? 3 : 2)
                    && (deleted || (latest.of(id).contains("2") && flat.of(id).contains("2")));
                if (!there) {
                    return false;
                }
            }
        }
        return true;
    }
}
