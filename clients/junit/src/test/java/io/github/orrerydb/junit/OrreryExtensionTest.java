package io.github.orrerydb.junit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.junit.jupiter.api.Test;

@Orrery(containers = "shop/orders:/customer")
class OrreryExtensionTest {
    @Test
    void theServerHasTheContainer(OrreryServer server) throws Exception {
        HttpResponse<String> answer = get(server, "/dbs/shop/colls/orders", "colls", "dbs/shop/colls/orders");
        assertEquals(200, answer.statusCode(), answer.body());
        assertTrue(answer.body().contains("\"/customer\""), answer.body());
        assertTrue(server.connectionString().startsWith("AccountEndpoint=http://127.0.0.1:"), server.connectionString());
    }

    @Test
    void otherServersStandBesideItAndEndWhenClosed(OrreryServer server) throws Exception {
        OrreryServer other = OrreryServer.start(List.of());
        assertFalse(other.endpoint().equals(server.endpoint()));
        assertEquals(404, get(other, "/dbs/shop", "dbs", "dbs/shop").statusCode());
        other.close();
        assertThrows(IOException.class, () -> get(other, "/dbs/shop", "dbs", "dbs/shop"));
        assertEquals(200, get(server, "/dbs/shop", "dbs", "dbs/shop").statusCode());
    }

    @Test
    void aWrongContainerIsAnError() {
        assertThrows(IllegalStateException.class, () -> OrreryServer.start(List.of("no container")));
    }

    /** A signed request, as in the documentation of the protocol. */
    private static HttpResponse<String> get(OrreryServer server, String path, String type, String link) throws Exception {
        String date = DateTimeFormatter.RFC_1123_DATE_TIME.format(ZonedDateTime.now(ZoneOffset.UTC).withNano(0));
        String text = "get\n" + type + "\n" + link + "\n" + date.toLowerCase(Locale.ROOT) + "\n\n";
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(Base64.getDecoder().decode(server.key()), "HmacSHA256"));
        String signature = Base64.getEncoder().encodeToString(mac.doFinal(text.getBytes(StandardCharsets.UTF_8)));
        String token = URLEncoder.encode("type=master&ver=1.0&sig=" + signature, StandardCharsets.UTF_8);
        HttpRequest request = HttpRequest.newBuilder(URI.create(server.endpoint()).resolve(path))
                .header("authorization", token).header("x-ms-date", date).header("x-ms-version", "2018-12-31").build();
        return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    }
}
