// Package orrery_test drives a running server with the official Go client.
// Expectations come from the client's documentation and the public REST
// reference; nothing here knows how the server works inside. Every test makes
// its own database, so tests run in parallel and leave nothing behind.
package orrery_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// The key that every emulator of the service publishes and accepts on loopback.
const emulatorKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

// endpoint is the plain HTTP address of the server, without a final slash.
func endpoint(t *testing.T) string {
	t.Helper()
	address := os.Getenv("ORRERY_ENDPOINT")
	if address == "" {
		t.Fatal("ORRERY_ENDPOINT is not set: start the suite with ./run")
	}
	return strings.TrimRight(address, "/")
}

func newClient(t *testing.T) *azcosmos.Client {
	t.Helper()
	return clientFor(t, endpoint(t), emulatorKey, nil)
}

func clientFor(t *testing.T, address, key string, transport *http.Client) *azcosmos.Client {
	t.Helper()
	credential := of(azcosmos.NewKeyCredential(key)).must(t)
	options := &azcosmos.ClientOptions{}
	if transport != nil {
		options.ClientOptions = azcore.ClientOptions{Transport: transport}
	}
	client := of(azcosmos.NewClientWithKey(address, credential, options)).must(t)
	t.Cleanup(client.Close)
	return client
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func uniqueName(prefix string) string {
	var suffix [6]byte
	_, _ = rand.Read(suffix[:])
	return prefix + "-" + hex.EncodeToString(suffix[:])
}

// newDatabase makes a database that is dropped when the test ends.
func newDatabase(t *testing.T, client *azcosmos.Client, options *azcosmos.CreateDatabaseOptions) *azcosmos.DatabaseClient {
	t.Helper()
	id := uniqueName("go")
	of(client.CreateDatabase(deadline(t), azcosmos.DatabaseProperties{ID: id}, options)).must(t)
	database := of(client.NewDatabase(id)).must(t)
	t.Cleanup(func() { _, _ = database.Delete(context.Background(), nil) })
	return database
}

// hashed describes a container with one partition key path.
func hashed(id, path string) azcosmos.ContainerProperties {
	return azcosmos.ContainerProperties{
		ID:                     id,
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{path}, Version: 2},
	}
}

func newContainer(t *testing.T, properties azcosmos.ContainerProperties) *azcosmos.ContainerClient {
	t.Helper()
	database := newDatabase(t, newClient(t), nil)
	of(database.CreateContainer(deadline(t), properties, nil)).must(t)
	return of(database.NewContainer(properties.ID)).must(t)
}

// newItems makes a container keyed by /pk.
func newItems(t *testing.T) *azcosmos.ContainerClient {
	t.Helper()
	return newContainer(t, hashed("items", "/pk"))
}

var key = azcosmos.NewPartitionKeyString

// withContent asks for the written item in the answer.
func withContent() *azcosmos.ItemOptions {
	return &azcosmos.ItemOptions{EnableContentResponseOnWrite: true}
}

type object = map[string]any

func encode(t *testing.T, value any) []byte {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(text.Bytes())
}

func decode(t *testing.T, text []byte) object {
	t.Helper()
	value := object{}
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("not a JSON object: %v: %q", err, text)
	}
	return value
}

// outcome is the result of one call, waiting for a verdict.
type outcome[T any] struct {
	value T
	err   error
}

func of[T any](value T, err error) outcome[T] { return outcome[T]{value, err} }

func (o outcome[T]) must(t *testing.T) T {
	t.Helper()
	if o.err != nil {
		t.Fatalf("the call failed: %v", o.err)
	}
	return o.value
}

// fails wants a refusal with this status and sub-status ("" for none) and
// returns the text of the error.
func (o outcome[T]) fails(t *testing.T, status int, subStatus string) string {
	t.Helper()
	if o.err == nil {
		t.Fatalf("the call succeeded, want status %d", status)
	}
	var response *azcore.ResponseError
	if !errors.As(o.err, &response) {
		t.Fatalf("want status %d, got another kind of error: %v", status, o.err)
	}
	found := response.RawResponse.Header.Get("x-ms-substatus")
	if found == "0" {
		found = ""
	}
	if response.StatusCode != status || found != subStatus {
		t.Fatalf("status %d sub-status %q, want %d %q: %v", response.StatusCode, found, status, subStatus, o.err)
	}
	if response.RawResponse.Header.Get("x-ms-activity-id") == "" {
		t.Errorf("the refusal has no activity id")
	}
	return o.err.Error()
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func sameJSON(t *testing.T, what string, got, want any) {
	t.Helper()
	if left, right := string(encode(t, got)), string(encode(t, want)); left != right {
		t.Errorf("%s: got %s, want %s", what, left, right)
	}
}

func contains(t *testing.T, text, fragment string) {
	t.Helper()
	if !strings.Contains(text, fragment) {
		t.Errorf("%q is missing in: %s", fragment, text)
	}
}

func wantCharge(t *testing.T, response azcosmos.Response) {
	t.Helper()
	if response.RequestCharge <= 0 {
		t.Errorf("request charge %v, want more than 0", response.RequestCharge)
	}
	if response.ActivityID == "" {
		t.Error("no activity id")
	}
}

func item(id, pk string, more ...object) object {
	value := object{"id": id, "pk": pk}
	for _, properties := range more {
		for name, property := range properties {
			value[name] = property
		}
	}
	return value
}

func text(format string, arguments ...any) string { return fmt.Sprintf(format, arguments...) }
