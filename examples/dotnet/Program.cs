// Orders of customers. Start it with `dotnet run`.

using Microsoft.Azure.Cosmos;

var endpoint = Environment.GetEnvironmentVariable("COSMOS_ENDPOINT");
var key = Environment.GetEnvironmentVariable("COSMOS_KEY");

// One client for the whole process: it keeps connections and the partition map.
var client = new CosmosClient($"AccountEndpoint={endpoint};AccountKey={key};DisableServerCertificateValidation=True;");
Database database = await client.CreateDatabaseIfNotExistsAsync("shop");
Container orders = await database.CreateContainerIfNotExistsAsync("orders", "/customer");

var app = WebApplication.CreateBuilder(args).Build();

app.MapGet("/health", () => new { status = "up" });

app.MapPost("/orders", (NewOrder order) => Answer(201, async () =>
{
    var item = new Order(order.id, order.customer, order.total, "open", DateTime.UtcNow);
    return (await orders.CreateItemAsync(item, new PartitionKey(order.customer))).Resource;
}));

// Id and partition key: a point read, the cheapest request.
app.MapGet("/customers/{customer}/orders/{id}", (string customer, string id) => Answer(200, async () =>
    (await orders.ReadItemAsync<Order>(id, new PartitionKey(customer))).Resource));

app.MapGet("/customers/{customer}/orders", (string customer) => Answer(200, async () =>
{
    var query = new QueryDefinition("SELECT * FROM c WHERE c.customer = @customer ORDER BY c.at DESC OFFSET 0 LIMIT 20")
        .WithParameter("@customer", customer);
    using var pages = orders.GetItemQueryIterator<Order>(
        query, requestOptions: new QueryRequestOptions { PartitionKey = new PartitionKey(customer) });
    var found = new List<Order>();
    while (pages.HasMoreResults) found.AddRange(await pages.ReadNextAsync());
    return found;
}));

app.MapPost("/customers/{customer}/orders/{id}/ship", (string customer, string id) => Answer(200, async () =>
{
    var read = await orders.ReadItemAsync<Order>(id, new PartitionKey(customer));
    // The etag makes sure that nobody has changed the order since it was read.
    var options = new ItemRequestOptions { IfMatchEtag = read.ETag };
    return (await orders.ReplaceItemAsync(read.Resource with { status = "shipped" }, id, new PartitionKey(customer), options)).Resource;
}));

app.Run($"http://127.0.0.1:{Environment.GetEnvironmentVariable("PORT") ?? "8000"}");

// The status of an error is the service's: 409 for an id that exists, 404, 412 for a stale etag.
static async Task<IResult> Answer<T>(int status, Func<Task<T>> work)
{
    try { return Results.Json(await work(), statusCode: status); }
    catch (CosmosException error) { return Results.Json(new { error = error.Message }, statusCode: (int)error.StatusCode); }
}

record NewOrder(string id, string customer, double total);
record Order(string id, string customer, double total, string status, DateTime at);
