package orrery_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func roundTrip(t *testing.T, client *azcosmos.Client) {
	t.Helper()
	ctx := deadline(t)
	database := newDatabase(t, client, nil)
	of(database.CreateContainer(ctx, hashed("c", "/pk"), nil)).must(t)
	container := of(database.NewContainer("c")).must(t)
	of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a", object{"n": 1})), nil)).must(t)
	read := of(container.ReadItem(ctx, key("a"), "1", nil)).must(t)
	sameJSON(t, "n", decode(t, read.Value)["n"], 1)
}

func TestConnectOverHTTP(t *testing.T) {
	t.Parallel()
	roundTrip(t, newClient(t))
}

func TestConnectWithTrailingSlash(t *testing.T) {
	t.Parallel()
	roundTrip(t, clientFor(t, endpoint(t)+"/", emulatorKey, nil))
}

func TestConnectWithConnectionString(t *testing.T) {
	t.Parallel()
	text := "AccountEndpoint=" + endpoint(t) + "/;AccountKey=" + emulatorKey + ";"
	client := of(azcosmos.NewClientFromConnectionString(text, nil)).must(t)
	t.Cleanup(client.Close)
	roundTrip(t, client)
}

// The certificate is trusted as a user would trust it: downloaded once, then
// verified on every connection, host name included.
func TestConnectOverHTTPS(t *testing.T) {
	t.Parallel()
	response := of(http.Get(endpoint(t) + "/_explorer/emulator.pem")).must(t)
	defer response.Body.Close()
	pem := of(io.ReadAll(response.Body)).must(t)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		t.Fatalf("no certificate in %q", pem)
	}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		t.Run(host, func(t *testing.T) {
			port := endpoint(t)[strings.LastIndex(endpoint(t), ":"):]
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
			t.Cleanup(transport.CloseIdleConnections)
			roundTrip(t, clientFor(t, "https://"+host+port, emulatorKey, &http.Client{Transport: transport}))
		})
	}
}

func TestHTTP2OverTLS(t *testing.T) {
	t.Parallel()
	port := endpoint(t)[strings.LastIndex(endpoint(t), ":"):]
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	client := clientFor(t, "https://localhost"+port, emulatorKey, &http.Client{Transport: transport})
	created := of(client.CreateDatabase(deadline(t), azcosmos.DatabaseProperties{ID: uniqueName("go")}, nil)).must(t)
	equal(t, "protocol", created.RawResponse.Proto, "HTTP/2.0")
	database := of(client.NewDatabase(created.DatabaseProperties.ID)).must(t)
	of(database.Delete(deadline(t), nil)).must(t)
}

func TestWrongKeyIsRefused(t *testing.T) {
	t.Parallel()
	wrong := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 64)))
	client := clientFor(t, endpoint(t), wrong, nil)
	_, err := client.CreateDatabase(deadline(t), azcosmos.DatabaseProperties{ID: uniqueName("go")}, nil)
	if err == nil || !strings.Contains(err.Error(), "401") {
		t.Fatalf("want 401, got %v", err)
	}
}
