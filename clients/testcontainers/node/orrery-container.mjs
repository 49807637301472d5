// Orrery in a container, for Testcontainers.
import { GenericContainer, Wait } from "testcontainers";

const PORT = 8081;

export const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/** Starts a server whose containers are listed as "shop/orders:/customer". */
export async function startOrrery(...containers) {
  const container = await new GenericContainer(process.env.ORRERY_IMAGE ?? "orrery:0.2.0")
    .withExposedPorts(PORT)
    .withCommand(["serve", "--in-memory", "--profile", "emulator"])
    .withEnvironment({ ORRERY_CONTAINERS: containers.join(",") })
    .withWaitStrategy(Wait.forHttp("/ready", PORT))
    .start();
  return {
    endpoint: `http://${container.getHost()}:${container.getMappedPort(PORT)}/`,
    key: KEY,
    stop: () => container.stop(),
  };
}
