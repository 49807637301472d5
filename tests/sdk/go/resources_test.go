package orrery_test

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func TestDatabaseLifeCycle(t *testing.T) {
	t.Parallel()
	ctx, client := deadline(t), newClient(t)
	id := uniqueName("go")
	created := of(client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: id}, nil)).must(t)
	equal(t, "status", created.RawResponse.StatusCode, 201)
	equal(t, "id", created.DatabaseProperties.ID, id)
	wantCharge(t, created.Response)
	if created.DatabaseProperties.ETag == nil || created.DatabaseProperties.ResourceID == "" ||
		created.DatabaseProperties.SelfLink == "" || created.DatabaseProperties.LastModified.IsZero() {
		t.Errorf("system properties are missing: %+v", created.DatabaseProperties)
	}
	message := of(client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: id}, nil)).fails(t, 409, "")
	contains(t, message, "already exists")

	database := of(client.NewDatabase(id)).must(t)
	read := of(database.Read(ctx, nil)).must(t)
	equal(t, "rid", read.DatabaseProperties.ResourceID, created.DatabaseProperties.ResourceID)
	equal(t, "etag", read.ETag, created.ETag)

	gone := of(database.Delete(ctx, nil)).must(t)
	equal(t, "status", gone.RawResponse.StatusCode, 204)
	of(database.Read(ctx, nil)).fails(t, 404, "")
	of(database.Delete(ctx, nil)).fails(t, 404, "")
}

func TestListDatabases(t *testing.T) {
	t.Parallel()
	ctx, client := deadline(t), newClient(t)
	wanted := map[string]bool{}
	for range 3 {
		wanted[newDatabase(t, client, nil).ID()] = true
	}
	pager := client.NewQueryDatabasesPager("SELECT * FROM root r", nil)
	for pager.More() {
		for _, database := range of(pager.NextPage(ctx)).must(t).Databases {
			delete(wanted, database.ID)
		}
	}
	if len(wanted) != 0 {
		t.Errorf("not listed: %v", wanted)
	}
}

func TestFindOneDatabaseByQuery(t *testing.T) {
	t.Parallel()
	ctx, client := deadline(t), newClient(t)
	id := newDatabase(t, client, nil).ID()
	newDatabase(t, client, nil)
	pager := client.NewQueryDatabasesPager("SELECT * FROM root r WHERE r.id = @id", &azcosmos.QueryDatabasesOptions{
		QueryParameters: []azcosmos.QueryParameter{{Name: "@id", Value: id}},
	})
	var found []string
	for pager.More() {
		for _, database := range of(pager.NextPage(ctx)).must(t).Databases {
			found = append(found, database.ID)
		}
	}
	sameJSON(t, "found", found, []string{id})
}

func TestDatabaseIDsThatAreRefused(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	for _, id := range []string{"a/b", "a#b", "a?b", "ends ", strings.Repeat("d", 256)} {
		t.Run(id[:min(len(id), 8)], func(t *testing.T) {
			of(client.CreateDatabase(deadline(t), azcosmos.DatabaseProperties{ID: id}, nil)).fails(t, 400, "")
		})
	}
}

func TestContainerLifeCycle(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	database := newDatabase(t, newClient(t), nil)
	created := of(database.CreateContainer(ctx, hashed("c", "/pk"), nil)).must(t)
	equal(t, "status", created.RawResponse.StatusCode, 201)
	properties := created.ContainerProperties
	equal(t, "id", properties.ID, "c")
	sameJSON(t, "paths", properties.PartitionKeyDefinition.Paths, []string{"/pk"})
	equal(t, "version", properties.PartitionKeyDefinition.Version, 2)
	equal(t, "kind", properties.PartitionKeyDefinition.Kind, azcosmos.PartitionKeyKindHash)
	if properties.IndexingPolicy == nil {
		t.Fatal("no indexing policy")
	}
	equal(t, "automatic", properties.IndexingPolicy.Automatic, true)
	equal(t, "indexing mode", strings.ToLower(string(properties.IndexingPolicy.IndexingMode)), "consistent")
	sameJSON(t, "included", properties.IndexingPolicy.IncludedPaths, []azcosmos.IncludedPath{{Path: "/*"}})
	sameJSON(t, "excluded", properties.IndexingPolicy.ExcludedPaths, []azcosmos.ExcludedPath{{Path: `/"_etag"/?`}})

	of(database.CreateContainer(ctx, hashed("c", "/other"), nil)).fails(t, 409, "")

	container := of(database.NewContainer("c")).must(t)
	read := of(container.Read(ctx, &azcosmos.ReadContainerOptions{PopulateQuotaInfo: true})).must(t)
	equal(t, "rid", read.ContainerProperties.ResourceID, properties.ResourceID)
	contains(t, read.RawResponse.Header.Get("x-ms-resource-usage"), "documentsCount=")

	gone := of(container.Delete(ctx, nil)).must(t)
	equal(t, "status", gone.RawResponse.StatusCode, 204)
	of(container.Read(ctx, nil)).fails(t, 404, "")
}

func TestListContainers(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	database := newDatabase(t, newClient(t), nil)
	for _, id := range []string{"one", "two", "three"} {
		of(database.CreateContainer(ctx, hashed(id, "/pk"), nil)).must(t)
	}
	found := map[string]string{}
	pager := database.NewQueryContainersPager("SELECT * FROM root r", nil)
	for pager.More() {
		for _, container := range of(pager.NextPage(ctx)).must(t).Containers {
			found[container.ID] = container.PartitionKeyDefinition.Paths[0]
		}
	}
	sameJSON(t, "containers", found, map[string]string{"one": "/pk", "two": "/pk", "three": "/pk"})
}

func TestContainerOfMissingDatabase(t *testing.T) {
	t.Parallel()
	database := of(newClient(t).NewDatabase(uniqueName("absent"))).must(t)
	_, err := database.CreateContainer(deadline(t), hashed("c", "/pk"), nil)
	if err == nil || !strings.Contains(err.Error(), "404") {
		t.Fatalf("want 404, got %v", err)
	}
}

func TestHierarchicalContainer(t *testing.T) {
	t.Parallel()
	container := newContainer(t, azcosmos.ContainerProperties{ID: "h", PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{
		Paths: []string{"/tenant", "/user", "/session"}, Version: 2, Kind: azcosmos.PartitionKeyKindMultiHash,
	}})
	definition := of(container.Read(deadline(t), nil)).must(t).ContainerProperties.PartitionKeyDefinition
	equal(t, "kind", definition.Kind, azcosmos.PartitionKeyKindMultiHash)
	sameJSON(t, "paths", definition.Paths, []string{"/tenant", "/user", "/session"})
}

func TestPartitionKeyDefinitionsThatAreRefused(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, newClient(t), nil)
	for name, definition := range map[string]azcosmos.PartitionKeyDefinition{
		"four levels":  {Paths: []string{"/a", "/b", "/c", "/d"}, Version: 2, Kind: azcosmos.PartitionKeyKindMultiHash},
		"old version":  {Paths: []string{"/a", "/b"}, Version: 1, Kind: azcosmos.PartitionKeyKindMultiHash},
		"plain, twice": {Paths: []string{"/a", "/b"}, Version: 2, Kind: azcosmos.PartitionKeyKindHash},
		"repeated":     {Paths: []string{"/a", "/a"}, Version: 2, Kind: azcosmos.PartitionKeyKindMultiHash},
		"no slash":     {Paths: []string{"a"}, Version: 2, Kind: azcosmos.PartitionKeyKindHash},
	} {
		t.Run(name, func(t *testing.T) {
			of(database.CreateContainer(deadline(t), azcosmos.ContainerProperties{ID: "c", PartitionKeyDefinition: definition}, nil)).fails(t, 400, "")
		})
	}
}

func TestContainerPolicies(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	properties := hashed("p", "/pk")
	properties.DefaultTimeToLive = to.Ptr[int32](3600)
	properties.UniqueKeyPolicy = &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/email"}}, {Paths: []string{"/a", "/b/c"}}}}
	properties.ConflictResolutionPolicy = &azcosmos.ConflictResolutionPolicy{Mode: azcosmos.ConflictResolutionModeLastWriteWins, ResolutionPath: "/rank"}
	properties.IndexingPolicy = &azcosmos.IndexingPolicy{
		Automatic:     true,
		IndexingMode:  azcosmos.IndexingModeConsistent,
		IncludedPaths: []azcosmos.IncludedPath{{Path: "/*"}},
		ExcludedPaths: []azcosmos.ExcludedPath{{Path: "/blob/*"}},
		CompositeIndexes: [][]azcosmos.CompositeIndex{{
			{Path: "/name", Order: azcosmos.CompositeIndexAscending}, {Path: "/age", Order: azcosmos.CompositeIndexDescending},
		}},
		SpatialIndexes: []azcosmos.SpatialIndex{{Path: "/location/*", SpatialTypes: []azcosmos.SpatialType{azcosmos.SpatialTypePoint, azcosmos.SpatialTypePolygon}}},
	}
	read := of(newContainer(t, properties).Read(ctx, nil)).must(t).ContainerProperties
	sameJSON(t, "time to live", read.DefaultTimeToLive, 3600)
	sameJSON(t, "unique keys", read.UniqueKeyPolicy, properties.UniqueKeyPolicy)
	sameJSON(t, "conflict resolution", read.ConflictResolutionPolicy, properties.ConflictResolutionPolicy)
	sameJSON(t, "composite", read.IndexingPolicy.CompositeIndexes, properties.IndexingPolicy.CompositeIndexes)
	contains(t, string(encode(t, read.IndexingPolicy.SpatialIndexes)), "/location/*")
	excluded := string(encode(t, read.IndexingPolicy.ExcludedPaths))
	contains(t, excluded, "/blob/*")
	contains(t, excluded, "_etag")
}

func TestIndexingModeNone(t *testing.T) {
	t.Parallel()
	properties := hashed("n", "/pk")
	properties.IndexingPolicy = &azcosmos.IndexingPolicy{Automatic: false, IndexingMode: azcosmos.IndexingModeNone}
	container := newContainer(t, properties)
	read := of(container.Read(deadline(t), nil)).must(t)
	equal(t, "mode", strings.ToLower(string(read.ContainerProperties.IndexingPolicy.IndexingMode)), "none")
	of(container.CreateItem(deadline(t), key("a"), encode(t, item("1", "a")), nil)).must(t)
	of(container.ReadItem(deadline(t), key("a"), "1", nil)).must(t)
}

func TestReplaceContainer(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	container := newItems(t)
	properties := *of(container.Read(ctx, nil)).must(t).ContainerProperties
	before := *properties.ETag
	properties.DefaultTimeToLive = to.Ptr[int32](-1)
	properties.IndexingPolicy.ExcludedPaths = append(properties.IndexingPolicy.ExcludedPaths, azcosmos.ExcludedPath{Path: "/skip/*"})
	replaced := of(container.Replace(ctx, properties, nil)).must(t)
	equal(t, "status", replaced.RawResponse.StatusCode, 200)
	sameJSON(t, "time to live", replaced.ContainerProperties.DefaultTimeToLive, -1)
	contains(t, string(encode(t, replaced.ContainerProperties.IndexingPolicy.ExcludedPaths)), "/skip/*")
	equal(t, "rid", replaced.ContainerProperties.ResourceID, properties.ResourceID)
	if *replaced.ContainerProperties.ETag == before {
		t.Error("the etag did not change")
	}

	properties.PartitionKeyDefinition.Paths = []string{"/another"}
	of(container.Replace(ctx, properties, nil)).fails(t, 400, "")
}

func TestRecreatedContainerIsAnotherOne(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	database := newDatabase(t, newClient(t), nil)
	first := of(database.CreateContainer(ctx, hashed("c", "/pk"), nil)).must(t)
	container := of(database.NewContainer("c")).must(t)
	of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), nil)).must(t)
	of(container.Delete(ctx, nil)).must(t)
	second := of(database.CreateContainer(ctx, hashed("c", "/pk"), nil)).must(t)
	if first.ContainerProperties.ResourceID == second.ContainerProperties.ResourceID {
		t.Error("the resource id was used again")
	}
	of(container.ReadItem(ctx, key("a"), "1", nil)).fails(t, 404, "")
}

func TestFeedRangesCoverTheKeySpace(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	database := newDatabase(t, newClient(t), nil)
	for name, throughput := range map[string]int32{"small": 400, "large": 30000} {
		options := &azcosmos.CreateContainerOptions{ThroughputProperties: to.Ptr(azcosmos.NewManualThroughputProperties(throughput))}
		of(database.CreateContainer(ctx, hashed(name, "/pk"), options)).must(t)
		ranges := of(of(database.NewContainer(name)).must(t).ReadFeedRanges(ctx, nil)).must(t)
		if wanted := int(throughput+9999) / 10000; len(ranges) < wanted {
			t.Errorf("%s: %d ranges for %d RU/s, want at least %d", name, len(ranges), throughput, wanted)
		}
		next := ""
		for _, found := range ranges {
			equal(t, name+" start", found.MinInclusive, next)
			next = found.MaxExclusive
		}
		equal(t, name+" end", next, "FF")
	}
}
