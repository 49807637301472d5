package orrery_test

import (
	"math"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func TestEveryKindOfPartitionKey(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	number := azcosmos.NewPartitionKeyNumber
	for _, version := range []int{1, 2} {
		properties := hashed("k", "/pk")
		properties.PartitionKeyDefinition.Version = version
		properties.PartitionKeyDefinition.Kind = azcosmos.PartitionKeyKindHash
		container := newContainer(t, properties)
		for _, each := range []struct {
			name string
			key  azcosmos.PartitionKey
			body string
		}{
			{"text", key("a"), `"a"`},
			{"empty text", key(""), `""`},
			{"unicode", key("é日本"), `"é日本"`},
			{"quotes", key(`say "hi" \ there`), `"say \"hi\" \\ there"`},
			{"long text", key(strings.Repeat("k", 1000)), `"` + strings.Repeat("k", 1000) + `"`},
			{"zero", number(0), `0`},
			{"one", number(1), `1.0`},
			{"negative", number(-12.5), `-12.5`},
			{"fraction", number(0.1), `0.1`},
			{"large", number(math.MaxFloat64), `1.7976931348623157e308`},
			{"true", azcosmos.NewPartitionKeyBool(true), `true`},
			{"false", azcosmos.NewPartitionKeyBool(false), `false`},
			{"null", azcosmos.NullPartitionKey, `null`},
		} {
			t.Run(text("version %d %s", version, each.name), func(t *testing.T) {
				body := []byte(`{"id":"1","pk":` + each.body + `}`)
				of(container.CreateItem(ctx, each.key, body, nil)).must(t)
				of(container.CreateItem(ctx, each.key, body, nil)).fails(t, 409, "")
				of(container.ReadItem(ctx, each.key, "1", nil)).must(t)
				of(container.ReplaceItem(ctx, each.key, "1", body, nil)).must(t)
				of(container.ReadItem(ctx, key("none of them"), "1", nil)).fails(t, 404, "")
				of(container.DeleteItem(ctx, each.key, "1", nil)).must(t)
			})
		}
	}
}

// The client sends no header for an empty key, so an item cannot be addressed by it.
func TestMissingPartitionKey(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	of(container.ReadItem(ctx, azcosmos.NewPartitionKey(), "1", nil)).fails(t, 400, "")
	of(container.DeleteItem(ctx, azcosmos.NewPartitionKey(), "1", nil)).fails(t, 400, "")
}

// A definition without a version is hashed the old way, as every client assumes.
func TestDefinitionWithoutVersion(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	container := newContainer(t, azcosmos.ContainerProperties{ID: "v", PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}}})
	if version := of(container.Read(ctx, nil)).must(t).ContainerProperties.PartitionKeyDefinition.Version; version > 1 {
		t.Errorf("version %d, want 1 or none", version)
	}
	of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), nil)).must(t)
	of(container.ReadItem(ctx, key("a"), "1", nil)).must(t)
}

func TestNestedAndQuotedKeyPaths(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	nested := newContainer(t, hashed("n", "/a/b"))
	of(nested.CreateItem(ctx, key("x"), []byte(`{"id":"1","a":{"b":"x"}}`), nil)).must(t)
	of(nested.ReadItem(ctx, key("x"), "1", nil)).must(t)
	of(nested.CreateItem(ctx, key("x"), []byte(`{"id":"2","a":"x"}`), nil)).fails(t, 400, "1001")

	quoted := newContainer(t, hashed("q", `/"a b"/c`))
	of(quoted.CreateItem(ctx, key("x"), []byte(`{"id":"1","a b":{"c":"x"}}`), nil)).must(t)
	of(quoted.ReadItem(ctx, key("x"), "1", nil)).must(t)

	byID := newContainer(t, hashed("i", "/id"))
	of(byID.CreateItem(ctx, key("1"), []byte(`{"id":"1"}`), nil)).must(t)
	of(byID.ReadItem(ctx, key("1"), "1", nil)).must(t)
	of(byID.CreateItem(ctx, key("2"), []byte(`{"id":"1"}`), nil)).fails(t, 400, "1001")
}

func TestHierarchicalKeys(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	container := newContainer(t, azcosmos.ContainerProperties{ID: "h", PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{
		Paths: []string{"/tenant", "/user", "/session"}, Version: 2, Kind: azcosmos.PartitionKeyKindMultiHash,
	}})
	start := azcosmos.NewPartitionKey
	for _, each := range []struct {
		key  azcosmos.PartitionKey
		body string
	}{
		{start().AppendString("t").AppendString("u").AppendString("s"), `{"id":"1","tenant":"t","user":"u","session":"s"}`},
		{start().AppendString("t").AppendNumber(7).AppendBool(true), `{"id":"1","tenant":"t","user":7,"session":true}`},
		{start().AppendString("t").AppendNull().AppendString(""), `{"id":"1","tenant":"t","user":null,"session":""}`},
	} {
		created := of(container.CreateItem(ctx, each.key, []byte(each.body), withContent())).must(t)
		sameJSON(t, "tenant", decode(t, created.Value)["tenant"], "t")
		of(container.ReadItem(ctx, each.key, "1", nil)).must(t)
		patch := azcosmos.PatchOperations{}
		patch.AppendSet("/n", 1)
		of(container.PatchItem(ctx, each.key, "1", patch, nil)).must(t)
	}
	body := []byte(`{"id":"2","tenant":"t","user":"u","session":"s"}`)
	// A prefix names many logical partitions, so it cannot address an item.
	of(container.ReadItem(ctx, start().AppendString("t"), "1", nil)).fails(t, 400, "1001")
	of(container.CreateItem(ctx, start().AppendString("t").AppendString("u"), body, nil)).fails(t, 400, "1001")
	four := start().AppendString("t").AppendString("u").AppendString("s").AppendString("x")
	of(container.ReadItem(ctx, four, "1", nil)).fails(t, 400, "1001")
	wrong := start().AppendString("t").AppendString("u").AppendString("other")
	of(container.CreateItem(ctx, wrong, body, nil)).fails(t, 400, "1001")
	of(container.ReadItem(ctx, wrong, "1", nil)).fails(t, 404, "")
}

func TestTooManyKeyComponents(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	of(container.ReadItem(ctx, key("a").AppendString("b"), "1", nil)).fails(t, 400, "1001")
}

func TestLongKeyIsRefused(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	long := strings.Repeat("k", 2049)
	of(container.CreateItem(ctx, key(long), encode(t, item("1", long)), nil)).fails(t, 400, "")
}

func TestOddItemIDs(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	for _, id := range []string{
		"with space", " leading", "trailing ", "a+b", "a%20b", "100%", "a&b=c", "a;b,c", "é", "日本語", "😀", "'quoted'", `"double"`,
		"a:b", "a@b", "$", "a.b", "...", "-", "~tilde~", "(round)[square]{curly}", "<tag>", "a|b", "`tick`", "^", "dbs", "colls", "docs",
		"a?b", "a#b", strings.Repeat("i", 255), strings.Repeat("i", 1023), "x\ty",
	} {
		t.Run(id[:min(len(id), 20)], func(t *testing.T) {
			of(container.CreateItem(ctx, key("a"), encode(t, item(id, "a")), nil)).must(t)
			read := of(container.ReadItem(ctx, key("a"), id, nil)).must(t)
			sameJSON(t, "id", decode(t, read.Value)["id"], id)
			of(container.ReplaceItem(ctx, key("a"), id, encode(t, item(id, "a", object{"n": 1})), nil)).must(t)
			of(container.DeleteItem(ctx, key("a"), id, nil)).must(t)
			of(container.ReadItem(ctx, key("a"), id, nil)).fails(t, 404, "")
		})
	}
}

func TestOddNames(t *testing.T) {
	t.Parallel()
	ctx, client := deadline(t), newClient(t)
	for _, name := range []string{"with space", "ünïcode", "colls", "a+b%c", "AAAAAA==", "(x)[y]"} {
		id := uniqueName(name)
		if name == "AAAAAA==" {
			// Looks like a resource id, and is a name all the same.
			id = "ZZZ" + uniqueName("x")[2:5] + "=="
		}
		t.Run(name, func(t *testing.T) {
			of(client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: id}, nil)).must(t)
			database := of(client.NewDatabase(id)).must(t)
			of(database.CreateContainer(ctx, hashed(name, "/pk"), nil)).must(t)
			container := of(database.NewContainer(name)).must(t)
			of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), nil)).must(t)
			of(container.ReadItem(ctx, key("a"), "1", nil)).must(t)
			of(database.Delete(ctx, nil)).must(t)
		})
	}
}
