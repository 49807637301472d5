using DotNet.Testcontainers.Builders;
using DotNet.Testcontainers.Containers;

namespace Orrery.Testcontainers;

/// <summary>Orrery in a container, for Testcontainers.</summary>
public sealed class OrreryContainer : IAsyncDisposable
{
    public const string Key =
        "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

    private const ushort Port = 8081;

    private readonly IContainer container;

    /// <summary>A server whose containers are listed as <c>shop/orders:/customer</c>.</summary>
    public OrreryContainer(params string[] containers)
    {
        container = new ContainerBuilder()
            .WithImage(Environment.GetEnvironmentVariable("ORRERY_IMAGE") ?? "orrery:0.2.0")
            .WithPortBinding(Port, assignRandomHostPort: true)
            .WithCommand("serve", "--in-memory", "--profile", "emulator")
            .WithEnvironment("ORRERY_CONTAINERS", string.Join(',', containers))
            .WithWaitStrategy(Wait.ForUnixContainer().UntilHttpRequestIsSucceeded(
                request => request.ForPath("/ready").ForPort(Port)))
            .Build();
    }

    /// <summary>The address for clients, which must use <c>ConnectionMode.Gateway</c>.</summary>
    public string Endpoint => $"http://{container.Hostname}:{container.GetMappedPublicPort(Port)}/";

    public Task StartAsync(CancellationToken cancellationToken = default) => container.StartAsync(cancellationToken);

    public ValueTask DisposeAsync() => container.DisposeAsync();
}
