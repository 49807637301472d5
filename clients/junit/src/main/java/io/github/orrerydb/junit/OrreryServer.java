package io.github.orrerydb.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A server in memory on a free loopback port, until it is closed. */
public final class OrreryServer implements AutoCloseable {
    /** The key that all emulators accept. */
    public static final String KEY =
            "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

    private static final Pattern ENDPOINT = Pattern.compile("\"endpoint\":\"([^\"]+)\"");

    private final Process process;
    private final String endpoint;

    private OrreryServer(Process process, String endpoint) {
        this.process = process;
        this.endpoint = endpoint;
    }

    /**
     * Starts a server and waits until it is ready. The binary is the one that the variable ORRERY_BIN or the system property
     * orrery.bin names, and otherwise the first {@code orrery} on the path.
     *
     * @param containers containers to create, such as {@code shop/orders:/customer}
     */
    public static OrreryServer start(List<String> containers) {
        List<String> command = new ArrayList<>(List.of(
                binary(), "serve", "--in-memory", "--profile", "emulator", "--listen", "127.0.0.1:0", "--output", "json"));
        for (String container : containers) {
            command.add("--containers");
            command.add(container);
        }
        try {
            Process process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
            // The first line says that it is ready, and where; there is no other.
            String line = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8)).readLine();
            Matcher found = ENDPOINT.matcher(line == null ? "" : line);
            if (!found.find()) {
                process.destroyForcibly();
                throw new IllegalStateException("orrery did not start: " + String.join(" ", command));
            }
            return new OrreryServer(process, found.group(1));
        } catch (IOException error) {
            throw new UncheckedIOException("cannot run orrery; install it, or name it with ORRERY_BIN", error);
        }
    }

    private static String binary() {
        String property = System.getProperty("orrery.bin");
        String variable = System.getenv("ORRERY_BIN");
        return property != null ? property : variable != null && !variable.isEmpty() ? variable : "orrery";
    }

    /** The address for clients. */
    public String endpoint() {
        return endpoint;
    }

    public String key() {
        return KEY;
    }

    public String connectionString() {
        return "AccountEndpoint=" + endpoint + ";AccountKey=" + KEY + ";";
    }

    /** Stops the server; everything in it is gone. */
    @Override
    public void close() {
        process.destroy();
        try {
            if (!process.waitFor(30, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException error) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }
}
