package orrery_test

import (
	"sort"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func ids(t *testing.T, container *azcosmos.ContainerClient, query string, pk azcosmos.PartitionKey, options *azcosmos.QueryOptions) ([]string, int) {
	t.Helper()
	found, pages := []string{}, 0
	pager := container.NewQueryItemsPager(query, pk, options)
	for pager.More() {
		page := of(pager.NextPage(deadline(t))).must(t)
		pages++
		for _, row := range page.Items {
			found = append(found, decode(t, row)["id"].(string))
		}
	}
	return found, pages
}

func filled(t *testing.T) *azcosmos.ContainerClient {
	t.Helper()
	container := newItems(t)
	for n := range 20 {
		pk := text("p%d", n%4)
		of(container.CreateItem(deadline(t), key(pk), encode(t, item(text("%02d", n), pk, object{"n": n})), nil)).must(t)
	}
	return container
}

func TestQueryOnePartition(t *testing.T) {
	t.Parallel()
	container := filled(t)
	found, _ := ids(t, container, "SELECT * FROM c ORDER BY c.n DESC", key("p1"), nil)
	sameJSON(t, "ids", found, []string{"17", "13", "09", "05", "01"})
	found, _ = ids(t, container, "SELECT c.id FROM c WHERE c.n > @n ORDER BY c.n", key("p1"), &azcosmos.QueryOptions{
		QueryParameters: []azcosmos.QueryParameter{{Name: "@n", Value: 8}},
	})
	sameJSON(t, "with parameter", found, []string{"09", "13", "17"})
}

func TestQueryPaging(t *testing.T) {
	t.Parallel()
	container := filled(t)
	found, pages := ids(t, container, "SELECT * FROM c ORDER BY c.n", key("p2"), &azcosmos.QueryOptions{PageSizeHint: 2})
	sameJSON(t, "ids", found, []string{"02", "06", "10", "14", "18"})
	if pages < 3 {
		t.Errorf("%d pages of two for five items", pages)
	}

	pager := container.NewQueryItemsPager("SELECT * FROM c ORDER BY c.n", key("p2"), &azcosmos.QueryOptions{PageSizeHint: 2})
	first := of(pager.NextPage(deadline(t))).must(t)
	if first.ContinuationToken == nil {
		t.Fatal("no continuation after the first page")
	}
	rest, _ := ids(t, container, "SELECT * FROM c ORDER BY c.n", key("p2"), &azcosmos.QueryOptions{ContinuationToken: first.ContinuationToken})
	sameJSON(t, "resumed", rest, []string{"10", "14", "18"})
}

func TestQueryAcrossPartitions(t *testing.T) {
	t.Parallel()
	container := filled(t)
	found, _ := ids(t, container, "SELECT * FROM c WHERE c.n >= 16", azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{EnableCrossPartitionQuery: to.Ptr(true)})
	sort.Strings(found)
	sameJSON(t, "ids", found, []string{"16", "17", "18", "19"})
}

func TestQueryErrors(t *testing.T) {
	t.Parallel()
	container := filled(t)
	pager := container.NewQueryItemsPager("SELECT FROM WHERE", key("p1"), nil)
	of(pager.NextPage(deadline(t))).fails(t, 400, "")
}

func TestQueryMetrics(t *testing.T) {
	t.Parallel()
	container := filled(t)
	pager := container.NewQueryItemsPager("SELECT * FROM c WHERE c.n > 3", key("p1"), &azcosmos.QueryOptions{PopulateIndexMetrics: true})
	page := of(pager.NextPage(deadline(t))).must(t)
	wantCharge(t, page.Response)
	if page.QueryMetrics == nil {
		t.Fatal("no query metrics")
	}
	contains(t, *page.QueryMetrics, "retrievedDocumentCount=")
}

func TestReadMany(t *testing.T) {
	t.Parallel()
	container := filled(t)
	wanted := []azcosmos.ItemIdentity{}
	for _, n := range []int{1, 6, 11, 16} {
		wanted = append(wanted, azcosmos.ItemIdentity{ID: text("%02d", n), PartitionKey: key(text("p%d", n%4))})
	}
	wanted = append(wanted, azcosmos.ItemIdentity{ID: "absent", PartitionKey: key("p1")})
	response := of(container.ReadManyItems(deadline(t), wanted, nil)).must(t)
	found := []string{}
	for _, row := range response.Items {
		found = append(found, decode(t, row)["id"].(string))
	}
	sort.Strings(found)
	sameJSON(t, "ids", found, []string{"01", "06", "11", "16"})
}

func TestHierarchicalPrefixQuery(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	container := newContainer(t, azcosmos.ContainerProperties{ID: "h", PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{
		Paths: []string{"/tenant", "/user"}, Version: 2, Kind: azcosmos.PartitionKeyKindMultiHash,
	}})
	for n := range 6 {
		tenant, user := text("t%d", n%2), text("u%d", n)
		body := encode(t, object{"id": text("%d", n), "tenant": tenant, "user": user})
		of(container.CreateItem(ctx, azcosmos.NewPartitionKeyString(tenant).AppendString(user), body, nil)).must(t)
	}
	found, _ := ids(t, container, "SELECT * FROM c WHERE c.tenant = 't1'", azcosmos.NewPartitionKey(), &azcosmos.QueryOptions{EnableCrossPartitionQuery: to.Ptr(true)})
	sort.Strings(found)
	sameJSON(t, "ids", found, []string{"1", "3", "5"})
}
