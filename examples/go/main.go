// Orders of customers. Start it with `go run .`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

type order struct {
	ID       string    `json:"id"`
	Customer string    `json:"customer"`
	Total    float64   `json:"total"`
	Status   string    `json:"status"`
	At       time.Time `json:"at"`
}

// service has one client for the whole process: it keeps connections.
type service struct{ orders *azcosmos.ContainerClient }

func connect(ctx context.Context, endpoint, key string) (*service, error) {
	credential, err := azcosmos.NewKeyCredential(key)
	if err != nil {
		return nil, err
	}
	client, err := azcosmos.NewClientWithKey(endpoint, credential, nil)
	if err != nil {
		return nil, err
	}
	if err := ensureContainer(ctx, client); err != nil {
		return nil, err
	}
	orders, err := client.NewContainer("shop", "orders")
	return &service{orders}, err
}

func ensureContainer(ctx context.Context, client *azcosmos.Client) error {
	if _, err := client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "shop"}, nil); err != nil && status(err) != http.StatusConflict {
		return err
	}
	database, err := client.NewDatabase("shop")
	if err != nil {
		return err
	}
	properties := azcosmos.ContainerProperties{
		ID:                     "orders",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/customer"}, Kind: azcosmos.PartitionKeyKindHash, Version: 2},
	}
	if _, err := database.CreateContainer(ctx, properties, nil); err != nil && status(err) != http.StatusConflict {
		return err
	}
	return nil
}

func (s *service) create(w http.ResponseWriter, r *http.Request) {
	var created order
	if err := json.NewDecoder(r.Body).Decode(&created); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	created.Status, created.At = "open", time.Now().UTC()
	body, err := json.Marshal(created)
	if err == nil {
		_, err = s.orders.CreateItem(r.Context(), azcosmos.NewPartitionKeyString(created.Customer), body, nil)
	}
	answer(w, http.StatusCreated, body, err)
}

func (s *service) read(w http.ResponseWriter, r *http.Request) {
	// Id and partition key: a point read, the cheapest request.
	found, err := s.orders.ReadItem(r.Context(), azcosmos.NewPartitionKeyString(r.PathValue("customer")), r.PathValue("id"), nil)
	answer(w, http.StatusOK, found.Value, err)
}

func (s *service) latest(w http.ResponseWriter, r *http.Request) {
	items, err := latestOrders(r.Context(), s.orders, r.PathValue("customer"))
	body, marshalError := json.Marshal(items)
	answer(w, http.StatusOK, body, errors.Join(err, marshalError))
}

func latestOrders(ctx context.Context, orders *azcosmos.ContainerClient, customer string) ([]json.RawMessage, error) {
	items := []json.RawMessage{}
	pager := orders.NewQueryItemsPager("SELECT * FROM c ORDER BY c.at DESC", azcosmos.NewPartitionKeyString(customer), nil)
	for pager.More() && len(items) < 20 {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			items = append(items, item)
		}
	}
	return items[:min(len(items), 20)], nil
}

func (s *service) ship(w http.ResponseWriter, r *http.Request) {
	key := azcosmos.NewPartitionKeyString(r.PathValue("customer"))
	found, err := s.orders.ReadItem(r.Context(), key, r.PathValue("id"), nil)
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	var changed map[string]any
	err = json.Unmarshal(found.Value, &changed)
	changed["status"] = "shipped"
	body, marshalError := json.Marshal(changed)
	if err = errors.Join(err, marshalError); err == nil {
		// The etag makes sure that nobody has changed the order since it was read.
		_, err = s.orders.ReplaceItem(r.Context(), key, r.PathValue("id"), body, &azcosmos.ItemOptions{IfMatchEtag: &found.ETag})
	}
	answer(w, http.StatusOK, body, err)
}

// status is the service's status of an error: 409 for an id that exists, 404, 412 for a stale etag.
func status(err error) int {
	var response *azcore.ResponseError
	if errors.As(err, &response) {
		return response.StatusCode
	}
	return http.StatusInternalServerError
}

func answer(w http.ResponseWriter, code int, body []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), status(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(body)
}

func main() {
	s, err := connect(context.Background(), os.Getenv("COSMOS_ENDPOINT"), os.Getenv("COSMOS_KEY"))
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, []byte(`{"status":"up"}`), nil) })
	http.HandleFunc("POST /orders", s.create)
	http.HandleFunc("GET /customers/{customer}/orders/{id}", s.read)
	http.HandleFunc("GET /customers/{customer}/orders", s.latest)
	http.HandleFunc("POST /customers/{customer}/orders/{id}/ship", s.ship)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
