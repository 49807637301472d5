package orrery;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.ChangeFeedProcessor;
import com.azure.cosmos.ChangeFeedProcessorBuilder;
import com.azure.cosmos.CosmosAsyncClient;
import com.azure.cosmos.CosmosAsyncContainer;
import com.azure.cosmos.CosmosContainer;
import com.azure.cosmos.models.ChangeFeedProcessorOptions;
import com.azure.cosmos.models.CosmosBulkOperations;
import com.azure.cosmos.models.CosmosContainerProperties;
import com.azure.cosmos.models.CosmosItemOperation;
import com.azure.cosmos.models.CosmosQueryRequestOptions;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Flux;

/** One partition becomes eight while an application writes, reads and follows the changes; it must not notice. */
class SplitsTest extends Server {
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    @Test
    void oneToEightUnderLoad() throws Exception {
        CosmosContainer container = items();
        Set<String> written = ConcurrentHashMap.newKeySet();
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicBoolean stop = new AtomicBoolean();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        try (CosmosAsyncClient worker = builder().buildAsyncClient()) {
            CosmosAsyncContainer same = worker.getDatabase(database.getId()).getContainer(container.getId());
            ChangeFeedProcessor processor = processor(worker, same, seen);
            processor.start().block();
            Thread writer = new Thread(() -> {
                try {
                    for (int round = 0; !stop.get(); round++) {
                        write(same, round, written);
                    }
                } catch (Throwable problem) {
                    failure.set(problem);
                }
            });
            writer.start();
            for (String partition : List.of("0", "1", "2", "3", "4", "5", "6")) {
                int before = written.size();
                eventually("writes go on", () -> failure.get() != null || written.size() > before + 40);
                split(container.getId(), partition);
            }
            int before = written.size();
            eventually("writes go on", () -> failure.get() != null || written.size() > before + 80);
            stop.set(true);
            writer.join(PATIENCE.toMillis());
            assertEquals(null, failure.get());
            assertEquals(8, same.getFeedRanges().block().size());
            List<String> found = same.queryItems("SELECT VALUE c.id FROM c", new CosmosQueryRequestOptions(), String.class)
                .collectList().block();
            assertEquals(written.size(), found.size());
            assertTrue(written.containsAll(found));
            eventually("every change arrives", () -> seen.containsAll(written));
            processor.stop().block();
        }
    }

    /** Twenty items in bulk, one by itself, and one read back. */
    private static void write(CosmosAsyncContainer container, int round, Set<String> written) {
        List<CosmosItemOperation> operations = new ArrayList<>();
        for (int at = 0; at < 20; at++) {
            ObjectNode item = item(round + "-" + at, "pk-" + (round * 20 + at) % 97);
            operations.add(CosmosBulkOperations.getCreateItemOperation(item, key(item.get("pk").asText())));
        }
        container.executeBulkOperations(Flux.fromIterable(operations)).doOnNext(response -> {
            if (response.getException() != null || response.getResponse().getStatusCode() != 201) {
                throw new IllegalStateException("bulk: " + response.getResponse(), response.getException());
            }
        }).blockLast(PATIENCE);
        ObjectNode single = item("single-" + round, "pk-" + round % 97);
        container.upsertItem(single).block(PATIENCE);
        container.readItem("single-" + round, key("pk-" + round % 97), JsonNode.class).block(PATIENCE);
        operations.forEach(operation -> written.add(((ObjectNode) operation.getItem()).get("id").asText()));
        written.add("single-" + round);
    }

    private ChangeFeedProcessor processor(CosmosAsyncClient reader, CosmosAsyncContainer feed, Set<String> seen) {
        CosmosAsyncContainer leases = reader.getDatabase(database.getId())
            .getContainer(container(new CosmosContainerProperties(unique("leases"), "/id")).getId());
        ChangeFeedProcessorOptions options = new ChangeFeedProcessorOptions()
            .setFeedPollDelay(Duration.ofMillis(100))
            .setLeaseAcquireInterval(Duration.ofMillis(500))
            .setStartFromBeginning(true);
        return new ChangeFeedProcessorBuilder()
            .hostName("host")
            .options(options)
            .feedContainer(feed)
            .leaseContainer(leases)
            .handleChanges((List<JsonNode> changes) -> changes.forEach(change -> seen.add(change.get("id").asText())))
            .buildChangeFeedProcessor();
    }

    /** The operator's request to split a partition, signed with the account key. */
    private void split(String container, String partition) throws Exception {
        String date = DateTimeFormatter.ofPattern("EEE, dd MMM yyyy HH:mm:ss 'GMT'", Locale.US).format(ZonedDateTime.now(ZoneOffset.UTC));
        String text = "post\nsplit\n_orrery/partitions\n" + date.toLowerCase(Locale.ROOT) + "\n\n";
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(Base64.getDecoder().decode(EMULATOR_KEY), "HmacSHA256"));
        String signature = Base64.getEncoder().encodeToString(mac.doFinal(text.getBytes(StandardCharsets.UTF_8)));
        String body = String.format(
            "{\"database\":\"%s\",\"container\":\"%s\",\"partition\":\"%s\"}", database.getId(), container, partition);
        HttpRequest request = HttpRequest.newBuilder(URI.create(plainEndpoint() + "/_orrery/partitions/split"))
            .header("authorization", URLEncoder.encode("type=master&ver=1.0&sig=" + signature, StandardCharsets.UTF_8))
            .header("x-ms-date", date)
            .POST(HttpRequest.BodyPublishers.ofString(body))
            .build();
        HttpResponse<String> response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        assertEquals(200, response.statusCode(), response.body());
    }
}
