// Package orrery starts Orrery in a container, for Testcontainers.
package orrery

import (
	"context"
	"os"
	"strings"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Key is the key that all emulators accept.
const Key = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

const port = "8081/tcp"

// Container is a server that is ready.
type Container struct {
	testcontainers.Container
	// URL is the address for clients.
	URL string
}

// Run starts a server whose containers are listed as "shop/orders:/customer".
func Run(ctx context.Context, containers ...string) (*Container, error) {
	image := os.Getenv("ORRERY_IMAGE")
	if image == "" {
		image = "orrery:0.2.0"
	}
	container, err := testcontainers.Run(ctx, image,
		testcontainers.WithExposedPorts(port),
		testcontainers.WithCmd("serve", "--in-memory", "--profile", "emulator"),
		testcontainers.WithEnv(map[string]string{"ORRERY_CONTAINERS": strings.Join(containers, ",")}),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/ready").WithPort(port)),
	)
	if err != nil {
		return nil, err
	}
	endpoint, err := container.PortEndpoint(ctx, port, "http")
	if err != nil {
		return nil, err
	}
	return &Container{Container: container, URL: endpoint + "/"}, nil
}
