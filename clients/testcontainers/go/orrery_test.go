package orrery_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/testcontainers/testcontainers-go"

	orrery "orrery.test/testcontainers"
)

func TestAnOrderIsFoundAgain(t *testing.T) {
	ctx := context.Background()
	server, err := orrery.Run(ctx, "shop/orders:/customer")
	if err != nil {
		t.Fatal(err)
	}
	testcontainers.CleanupContainer(t, server)

	credential, err := azcosmos.NewKeyCredential(orrery.Key)
	if err != nil {
		t.Fatal(err)
	}
	client, err := azcosmos.NewClientWithKey(server.URL, credential, nil)
	if err != nil {
		t.Fatal(err)
	}
	orders, err := client.NewContainer("shop", "orders")
	if err != nil {
		t.Fatal(err)
	}
	key := azcosmos.NewPartitionKeyString("ann")
	if _, err := orders.CreateItem(ctx, key, []byte(`{"id":"1","customer":"ann","total":12}`), nil); err != nil {
		t.Fatal(err)
	}
	found, err := orders.ReadItem(ctx, key, "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	var order struct{ Total int }
	if err := json.Unmarshal(found.Value, &order); err != nil || order.Total != 12 {
		t.Fatalf("%s, %v", found.Value, err)
	}
}
