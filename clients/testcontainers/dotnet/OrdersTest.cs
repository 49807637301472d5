using Microsoft.Azure.Cosmos;
using Xunit;

namespace Orrery.Testcontainers;

public sealed class OrdersTest : IAsyncLifetime
{
    private readonly OrreryContainer server = new("shop/orders:/customer");

    public Task InitializeAsync() => server.StartAsync();

    public Task DisposeAsync() => server.DisposeAsync().AsTask();

    [Fact]
    public async Task AnOrderIsFoundAgain()
    {
        var options = new CosmosClientOptions { ConnectionMode = ConnectionMode.Gateway, LimitToEndpoint = true };
        using var client = new CosmosClient(server.Endpoint, OrreryContainer.Key, options);
        var orders = client.GetContainer("shop", "orders");
        await orders.CreateItemAsync(new Order("1", "ann", 12), new PartitionKey("ann"));
        var found = await orders.ReadItemAsync<Order>("1", new PartitionKey("ann"));
        Assert.Equal(12, found.Resource.total);
    }

    private sealed record Order(string id, string customer, int total);
}
