// An Aspire host whose Cosmos DB is Orrery. Only the image and its profile differ from the vendor's emulator; the preview
// emulator is the one that speaks HTTP, so that no certificate has to be trusted.
#pragma warning disable ASPIRECOSMOSDB001

var builder = DistributedApplication.CreateBuilder(args);

var cosmos = builder.AddAzureCosmosDB("cosmos").RunAsPreviewEmulator(emulator => emulator
    .WithImageRegistry(null)
    .WithImage("orrery", "0.2.0")
    .WithEnvironment("ORRERY_PROFILE", "emulator")
    .WithDataVolume());

var orders = cosmos.AddCosmosDatabase("shop").AddContainer("orders", "/customer");

// builder.AddProject<Projects.Shop>("shop").WithReference(orders).WaitFor(orders);

builder.Build().Run();
