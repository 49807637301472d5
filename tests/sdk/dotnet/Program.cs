// What a .NET application does first, with the official client, in gateway and in direct mode (its default).
// Expectations come from the client's documentation; nothing here knows how the server works inside.
using System.Net;
using Microsoft.Azure.Cosmos;
using Newtonsoft.Json.Linq;

// The key that every emulator of the service publishes and accepts on loopback.
const string EmulatorKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

var endpoint = Environment.GetEnvironmentVariable("ORRERY_ENDPOINT")
    ?? throw new InvalidOperationException("ORRERY_ENDPOINT is not set: start the checks with ./run");
var failed = 0;
foreach (var mode in new[] { ConnectionMode.Gateway, ConnectionMode.Direct })
{
    var options = new CosmosClientOptions
    {
        ConnectionMode = mode,
        AllowBulkExecution = false,
        // The server's certificate is its own. Applications import it instead; see the README.
        ServerCertificateCustomValidationCallback = (_, _, _) => true,
    };
    using var client = new CosmosClient(endpoint.Replace("http://", "https://"), EmulatorKey, options);
    Database database = await client.CreateDatabaseAsync("dotnet-" + Guid.NewGuid());
    foreach (var (name, check) in Checks.All)
    {
        try
        {
            Container container = await database.CreateContainerAsync("c-" + Guid.NewGuid(), "/pk");
            await check(container);
            Console.WriteLine($"ok    {mode} {name}");
        }
        catch (Exception problem)
        {
            failed++;
            Console.WriteLine($"FAIL  {mode} {name}: {problem}");
        }
    }
    await database.DeleteAsync();
}
return failed == 0 ? 0 : 1;

static class Checks
{
    public static readonly (string Name, Func<Container, Task> Check)[] All =
    {
        ("items", Items),
        ("conflicts and preconditions", Preconditions),
        ("patch", Patch),
        ("batch", Batch),
        ("queries over pages", Queries),
        ("read many", ReadMany),
        ("change feed", ChangeFeed),
        ("stored procedure", Procedure),
    };

    static JObject Item(string id, string pk, int n) => new() { ["id"] = id, ["pk"] = pk, ["n"] = n };

    static void Equal<T>(T expected, T found)
    {
        if (!EqualityComparer<T>.Default.Equals(expected, found)) throw new Exception($"expected {expected}, found {found}");
    }

    static async Task Refused(HttpStatusCode status, Func<Task> call)
    {
        try { await call(); }
        catch (CosmosException problem) { Equal(status, problem.StatusCode); return; }
        throw new Exception($"expected {status}");
    }

    static async Task<List<T>> Drain<T>(FeedIterator<T> pages)
    {
        var all = new List<T>();
        while (pages.HasMoreResults) all.AddRange(await pages.ReadNextAsync());
        return all;
    }

    static async Task Items(Container container)
    {
        var key = new PartitionKey("a");
        Equal(HttpStatusCode.Created, (await container.CreateItemAsync(Item("1", "a", 1), key)).StatusCode);
        Equal(1, (int)(await container.ReadItemAsync<JObject>("1", key)).Resource["n"]!);
        Equal(HttpStatusCode.OK, (await container.ReplaceItemAsync(Item("1", "a", 2), "1", key)).StatusCode);
        Equal(HttpStatusCode.OK, (await container.UpsertItemAsync(Item("1", "a", 3), key)).StatusCode);
        Equal(HttpStatusCode.NoContent, (await container.DeleteItemAsync<JObject>("1", key)).StatusCode);
        await Refused(HttpStatusCode.NotFound, () => container.ReadItemAsync<JObject>("1", key));
    }

    static async Task Preconditions(Container container)
    {
        var key = new PartitionKey("a");
        var created = await container.CreateItemAsync(Item("1", "a", 1), key);
        await Refused(HttpStatusCode.Conflict, () => container.CreateItemAsync(Item("1", "a", 1), key));
        await container.UpsertItemAsync(Item("1", "a", 2), key);
        var options = new ItemRequestOptions { IfMatchEtag = created.ETag };
        await Refused(HttpStatusCode.PreconditionFailed, () => container.ReplaceItemAsync(Item("1", "a", 3), "1", key, options));
    }

    static async Task Patch(Container container)
    {
        var key = new PartitionKey("a");
        await container.CreateItemAsync(Item("1", "a", 1), key);
        var operations = new[] { PatchOperation.Increment("/n", 4), PatchOperation.Add("/text", "x") };
        var patched = await container.PatchItemAsync<JObject>("1", key, operations);
        Equal(5, (int)patched.Resource["n"]!);
        Equal("x", (string)patched.Resource["text"]!);
    }

    static async Task Batch(Container container)
    {
        var key = new PartitionKey("a");
        using var done = await container.CreateTransactionalBatch(key)
            .CreateItem(Item("1", "a", 1)).CreateItem(Item("2", "a", 2)).ReadItem("1").ExecuteAsync();
        Equal(true, done.IsSuccessStatusCode);
        using var refused = await container.CreateTransactionalBatch(key)
            .CreateItem(Item("3", "a", 3)).CreateItem(Item("1", "a", 1)).ExecuteAsync();
        Equal(HttpStatusCode.Conflict, refused.StatusCode);
        await Refused(HttpStatusCode.NotFound, () => container.ReadItemAsync<JObject>("3", key));
    }

    static async Task Fill(Container container, int count)
    {
        for (var n = 0; n < count; n++) await container.CreateItemAsync(Item(n.ToString(), "pk" + n % 5, n));
    }

    static async Task Queries(Container container)
    {
        await Fill(container, 20);
        var query = new QueryDefinition("SELECT VALUE c.n FROM c WHERE c.n >= @least ORDER BY c.n DESC").WithParameter("@least", 5);
        var found = await Drain(container.GetItemQueryIterator<int>(query, null, new QueryRequestOptions { MaxItemCount = 3 }));
        Equal(string.Join(",", Enumerable.Range(5, 15).Reverse()), string.Join(",", found));
        var sums = await Drain(container.GetItemQueryIterator<int>("SELECT VALUE SUM(c.n) FROM c"));
        Equal(190, sums.Single());
    }

    static async Task ReadMany(Container container)
    {
        await Fill(container, 20);
        var wanted = Enumerable.Range(0, 20).Select(n => (n.ToString(), new PartitionKey("pk" + n % 5))).ToList();
        Equal(20, (await container.ReadManyItemsAsync<JObject>(wanted)).Count);
    }

    static async Task ChangeFeed(Container container)
    {
        await Fill(container, 20);
        var pages = container.GetChangeFeedIterator<JObject>(ChangeFeedStartFrom.Beginning(), ChangeFeedMode.LatestVersion);
        var seen = 0;
        while (pages.HasMoreResults)
        {
            var page = await pages.ReadNextAsync();
            if (page.StatusCode == HttpStatusCode.NotModified) break;
            seen += page.Count;
        }
        Equal(20, seen);
    }

    static async Task Procedure(Container container)
    {
        const string body = "function sum(a, b) { getContext().getResponse().setBody(a + b); }";
        await container.Scripts.CreateStoredProcedureAsync(new Microsoft.Azure.Cosmos.Scripts.StoredProcedureProperties("sum", body));
        var result = await container.Scripts.ExecuteStoredProcedureAsync<int>("sum", new PartitionKey("a"), new dynamic[] { 2, 3 });
        Equal(5, result.Resource);
    }
}
