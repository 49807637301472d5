package orrery_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/spaolacci/murmur3"
)

// precalculated makes the key as the README shows: the suffix follows from
// another property, so that whoever knows that property can read the item.
func precalculated(date, vin string) string {
	return fmt.Sprintf("%s.%d", date, 1+murmur3.Sum32([]byte(vin))%400)
}

func TestPrecalculatedSuffixIsReadByOnePointRead(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	events := newContainer(t, hashed("events", "/partitionKey"))
	date, vin := "2018-08-09", "1HGCM82633A004352"
	key := precalculated(date, vin)
	equal(t, "the key", key, "2018-08-09.353")
	event := encode(t, object{"id": "1", "date": date, "VIN": vin, "partitionKey": key})
	of(events.CreateItem(ctx, azcosmos.NewPartitionKeyString(key), event, nil)).must(t)
	read := of(events.ReadItem(ctx, azcosmos.NewPartitionKeyString(precalculated(date, vin)), "1", nil)).must(t)
	equal[any](t, "the vehicle", decode(t, read.Value)["VIN"], vin)
	wantCharge(t, read.Response)
	of(events.ReadItem(ctx, azcosmos.NewPartitionKeyString(precalculated(date, "another")), "1", nil)).fails(t, 404, "")
}

// The hashes that the libraries share are this module's hashes too.
func TestHashesOfTheSharedVectors(t *testing.T) {
	t.Parallel()
	content := of(os.ReadFile("../../../crates/synthetic-key/tests/data/vectors.json")).must(t)
	var vectors struct {
		Hashes []struct {
			Text string
			Hash uint32
		}
	}
	if err := json.Unmarshal(content, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, vector := range vectors.Hashes {
		equal(t, text("the hash of %q", vector.Text), murmur3.Sum32([]byte(vector.Text)), vector.Hash)
	}
	if len(vectors.Hashes) < 50 {
		t.Errorf("only %d vectors", len(vectors.Hashes))
	}
}
