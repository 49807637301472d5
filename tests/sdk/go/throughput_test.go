package orrery_test

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func manual(t *testing.T, properties *azcosmos.ThroughputProperties) int32 {
	t.Helper()
	value, found := properties.ManualThroughput()
	if !found {
		t.Fatal("not manual throughput")
	}
	return value
}

func autoscale(t *testing.T, properties *azcosmos.ThroughputProperties) int32 {
	t.Helper()
	value, found := properties.AutoscaleMaxThroughput()
	if !found {
		t.Fatal("not autoscale throughput")
	}
	return value
}

func TestDatabaseThroughput(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	database := newDatabase(t, newClient(t), &azcosmos.CreateDatabaseOptions{
		ThroughputProperties: to.Ptr(azcosmos.NewManualThroughputProperties(600)),
	})
	read := of(database.ReadThroughput(ctx, nil)).must(t)
	equal(t, "throughput", manual(t, read.ThroughputProperties), 600)
	if read.MinThroughput == nil || *read.MinThroughput < 400 {
		t.Errorf("lowest throughput %v, want 400 or more", read.MinThroughput)
	}
	replaced := of(database.ReplaceThroughput(ctx, azcosmos.NewManualThroughputProperties(800), nil)).must(t)
	equal(t, "replaced", manual(t, replaced.ThroughputProperties), 800)
	equal(t, "read again", manual(t, of(database.ReadThroughput(ctx, nil)).must(t).ThroughputProperties), 800)

	// A container without throughput of its own shares the database's.
	of(database.CreateContainer(ctx, hashed("shared", "/pk"), nil)).must(t)
	shared := of(database.NewContainer("shared")).must(t)
	of(shared.ReadThroughput(ctx, nil)).fails(t, 404, "")
}

func TestDatabaseWithoutThroughput(t *testing.T) {
	t.Parallel()
	of(newDatabase(t, newClient(t), nil).ReadThroughput(deadline(t), nil)).fails(t, 404, "")
}

func TestContainerThroughputDefault(t *testing.T) {
	t.Parallel()
	read := of(newItems(t).ReadThroughput(deadline(t), nil)).must(t)
	equal(t, "throughput", manual(t, read.ThroughputProperties), 400)
}

func TestContainerThroughputReplace(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	database := newDatabase(t, newClient(t), nil)
	options := &azcosmos.CreateContainerOptions{ThroughputProperties: to.Ptr(azcosmos.NewManualThroughputProperties(500))}
	of(database.CreateContainer(ctx, hashed("c", "/pk"), options)).must(t)
	container := of(database.NewContainer("c")).must(t)
	equal(t, "first", manual(t, of(container.ReadThroughput(ctx, nil)).must(t).ThroughputProperties), 500)
	of(container.ReplaceThroughput(ctx, azcosmos.NewManualThroughputProperties(1000), nil)).must(t)
	read := of(container.ReadThroughput(ctx, nil)).must(t)
	equal(t, "second", manual(t, read.ThroughputProperties), 1000)
	equal(t, "pending", read.IsReplacePending, false)

	of(container.ReplaceThroughput(ctx, azcosmos.NewManualThroughputProperties(150), nil)).fails(t, 400, "")
	of(container.ReplaceThroughput(ctx, azcosmos.NewManualThroughputProperties(450), nil)).fails(t, 400, "")
}

func TestAutoscaleThroughput(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	database := newDatabase(t, newClient(t), nil)
	options := &azcosmos.CreateContainerOptions{ThroughputProperties: to.Ptr(azcosmos.NewAutoscaleThroughputProperties(4000))}
	of(database.CreateContainer(ctx, hashed("c", "/pk"), options)).must(t)
	container := of(database.NewContainer("c")).must(t)
	equal(t, "first", autoscale(t, of(container.ReadThroughput(ctx, nil)).must(t).ThroughputProperties), 4000)
	of(container.ReplaceThroughput(ctx, azcosmos.NewAutoscaleThroughputProperties(5000), nil)).must(t)
	equal(t, "second", autoscale(t, of(container.ReadThroughput(ctx, nil)).must(t).ThroughputProperties), 5000)
}

func TestAutoscaleWithIncrement(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, newClient(t), &azcosmos.CreateDatabaseOptions{
		ThroughputProperties: to.Ptr(azcosmos.NewAutoscaleThroughputPropertiesWithIncrement(5000, 10)),
	})
	read := of(database.ReadThroughput(deadline(t), nil)).must(t)
	equal(t, "maximum", autoscale(t, read.ThroughputProperties), 5000)
	increment, found := read.ThroughputProperties.AutoscaleIncrement()
	equal(t, "increment found", found, true)
	equal(t, "increment", increment, 10)
}

func TestThroughputThatIsRefusedAtCreation(t *testing.T) {
	t.Parallel()
	database := newDatabase(t, newClient(t), nil)
	for _, properties := range []azcosmos.ThroughputProperties{
		azcosmos.NewManualThroughputProperties(399),
		azcosmos.NewManualThroughputProperties(450),
		azcosmos.NewAutoscaleThroughputProperties(500),
		azcosmos.NewAutoscaleThroughputProperties(1500),
	} {
		of(database.CreateContainer(deadline(t), hashed("c", "/pk"), &azcosmos.CreateContainerOptions{ThroughputProperties: &properties})).fails(t, 400, "")
	}
}
