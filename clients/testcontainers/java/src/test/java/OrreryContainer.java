import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.utility.DockerImageName;

/** Orrery in a container, for Testcontainers. */
public class OrreryContainer extends GenericContainer<OrreryContainer> {
    public static final String KEY =
            "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

    private static final int PORT = 8081;

    /** A server whose containers are listed as {@code shop/orders:/customer}. */
    public OrreryContainer(String... containers) {
        super(DockerImageName.parse(System.getenv().getOrDefault("ORRERY_IMAGE", "orrery:0.2.0")));
        withExposedPorts(PORT);
        withCommand("serve", "--in-memory", "--profile", "emulator");
        withEnv("ORRERY_CONTAINERS", String.join(",", containers));
        waitingFor(Wait.forHttp("/ready").forPort(PORT));
    }

    /** The address for clients. */
    public String endpoint() {
        return "http://" + getHost() + ":" + getMappedPort(PORT) + "/";
    }
}
