package orrery_test

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func statuses(response azcosmos.TransactionalBatchResponse) []int32 {
	var codes []int32
	for _, result := range response.OperationResults {
		codes = append(codes, result.StatusCode)
	}
	return codes
}

func TestBatchSuccess(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	for _, id := range []string{"replaced", "patched", "deleted", "read"} {
		of(container.CreateItem(ctx, key("a"), encode(t, item(id, "a", object{"n": 1})), nil)).must(t)
	}
	batch := container.NewTransactionalBatch(key("a"))
	batch.CreateItem(encode(t, item("created", "a")), nil)
	batch.UpsertItem(encode(t, item("upserted", "a")), nil)
	batch.ReplaceItem("replaced", encode(t, item("replaced", "a", object{"n": 2})), nil)
	patch := azcosmos.PatchOperations{}
	patch.AppendIncrement("/n", 4)
	batch.PatchItem("patched", patch, nil)
	batch.DeleteItem("deleted", nil)
	batch.ReadItem("read", nil)
	batch.ReadItem("created", nil)
	response := of(container.ExecuteTransactionalBatch(ctx, batch, &azcosmos.TransactionalBatchOptions{EnableContentResponseOnWrite: true})).must(t)
	equal(t, "success", response.Success, true)
	sameJSON(t, "statuses", statuses(response), []int{201, 201, 200, 200, 204, 200, 200})
	sameJSON(t, "patched", decode(t, response.OperationResults[3].ResourceBody)["n"], 5)
	sameJSON(t, "read", decode(t, response.OperationResults[5].ResourceBody)["id"], "read")
	sameJSON(t, "read after create", decode(t, response.OperationResults[6].ResourceBody)["id"], "created")
	if response.OperationResults[0].ETag == "" || response.OperationResults[0].RequestCharge <= 0 {
		t.Errorf("no etag or charge: %+v", response.OperationResults[0])
	}
	if response.SessionToken == "" {
		t.Error("no session token")
	}
	wantCharge(t, response.Response)
	of(container.ReadItem(ctx, key("a"), "deleted", nil)).fails(t, 404, "")
	sameJSON(t, "replaced", decode(t, of(container.ReadItem(ctx, key("a"), "replaced", nil)).must(t).Value)["n"], 2)
}

func TestBatchWithoutContent(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	batch := container.NewTransactionalBatch(key("a"))
	batch.CreateItem(encode(t, item("1", "a")), nil)
	batch.UpsertItem(encode(t, item("2", "a")), nil)
	response := of(container.ExecuteTransactionalBatch(ctx, batch, nil)).must(t)
	equal(t, "success", response.Success, true)
	for _, result := range response.OperationResults {
		equal(t, "body", len(result.ResourceBody), 0)
	}
	of(container.ReadItem(ctx, key("a"), "2", nil)).must(t)
}

func TestBatchFailureChangesNothing(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	of(container.CreateItem(ctx, key("a"), encode(t, item("there", "a", object{"n": 1})), nil)).must(t)
	for name, each := range map[string]struct {
		status int32
		add    func(*azcosmos.TransactionalBatch)
	}{
		"conflict":  {409, func(b *azcosmos.TransactionalBatch) { b.CreateItem(encode(t, item("there", "a")), nil) }},
		"not found": {404, func(b *azcosmos.TransactionalBatch) { b.DeleteItem("absent", nil) }},
		"read":      {404, func(b *azcosmos.TransactionalBatch) { b.ReadItem("absent", nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			batch := container.NewTransactionalBatch(key("a"))
			batch.CreateItem(encode(t, item("new", "a")), nil)
			batch.ReplaceItem("there", encode(t, item("there", "a", object{"n": 2})), nil)
			each.add(&batch)
			batch.UpsertItem(encode(t, item("last", "a")), nil)
			response := of(container.ExecuteTransactionalBatch(ctx, batch, nil)).must(t)
			equal(t, "success", response.Success, false)
			sameJSON(t, "statuses", statuses(response), []int32{424, 424, each.status, 424})
			of(container.ReadItem(ctx, key("a"), "new", nil)).fails(t, 404, "")
			of(container.ReadItem(ctx, key("a"), "last", nil)).fails(t, 404, "")
			sameJSON(t, "n", decode(t, of(container.ReadItem(ctx, key("a"), "there", nil)).must(t).Value)["n"], 1)
		})
	}
}

func TestBatchPrecondition(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	first := of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), nil)).must(t).ETag
	second := of(container.ReplaceItem(ctx, key("a"), "1", encode(t, item("1", "a")), nil)).must(t).ETag
	run := func(batch azcosmos.TransactionalBatch) azcosmos.TransactionalBatchResponse {
		return of(container.ExecuteTransactionalBatch(ctx, batch, nil)).must(t)
	}
	stale := container.NewTransactionalBatch(key("a"))
	stale.ReplaceItem("1", encode(t, item("1", "a", object{"n": 1})), &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &first})
	sameJSON(t, "stale", statuses(run(stale)), []int{412})
	fresh := container.NewTransactionalBatch(key("a"))
	fresh.ReplaceItem("1", encode(t, item("1", "a", object{"n": 1})), &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &second})
	sameJSON(t, "fresh", statuses(run(fresh)), []int{200})
}

func TestBatchLimits(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	hundred := container.NewTransactionalBatch(key("a"))
	for n := range 100 {
		hundred.CreateItem(encode(t, item(text("%d", n), "a")), nil)
	}
	response := of(container.ExecuteTransactionalBatch(ctx, hundred, nil)).must(t)
	equal(t, "success", response.Success, true)
	equal(t, "results", len(response.OperationResults), 100)

	more := container.NewTransactionalBatch(key("b"))
	for n := range 101 {
		more.CreateItem(encode(t, item(text("%d", n), "b")), nil)
	}
	of(container.ExecuteTransactionalBatch(ctx, more, nil)).fails(t, 400, "")

	large := container.NewTransactionalBatch(key("c"))
	for n := range 3 {
		large.CreateItem(encode(t, item(text("%d", n), "c", object{"text": strings.Repeat("x", 1024*1024)})), nil)
	}
	of(container.ExecuteTransactionalBatch(ctx, large, nil)).fails(t, 413, "")
}

func TestBatchOfAnotherPartitionIsRefused(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	batch := container.NewTransactionalBatch(key("a"))
	batch.CreateItem(encode(t, item("1", "a")), nil)
	batch.CreateItem(encode(t, item("2", "b")), nil)
	response, err := container.ExecuteTransactionalBatch(ctx, batch, nil)
	if err == nil && response.Success {
		t.Fatal("a batch with an item of another logical partition succeeded")
	}
	of(container.ReadItem(ctx, key("a"), "1", nil)).fails(t, 404, "")
}

func TestBatchOnHierarchicalKey(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	container := newContainer(t, azcosmos.ContainerProperties{ID: "h", PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{
		Paths: []string{"/tenant", "/user"}, Version: 2, Kind: azcosmos.PartitionKeyKindMultiHash,
	}})
	both := azcosmos.NewPartitionKeyString("t").AppendString("u")
	batch := container.NewTransactionalBatch(both)
	batch.CreateItem([]byte(`{"id":"1","tenant":"t","user":"u"}`), nil)
	batch.ReadItem("1", nil)
	sameJSON(t, "statuses", statuses(of(container.ExecuteTransactionalBatch(ctx, batch, nil)).must(t)), []int{201, 200})
	partial := container.NewTransactionalBatch(azcosmos.NewPartitionKeyString("t"))
	partial.CreateItem([]byte(`{"id":"2","tenant":"t","user":"u"}`), nil)
	of(container.ExecuteTransactionalBatch(ctx, partial, nil)).fails(t, 400, "1001")
}
