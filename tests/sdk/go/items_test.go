package orrery_test

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func TestItemLifeCycle(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	body := item("1", "a", object{"name": "first", "list": []any{1, "two", nil, object{"deep": true}}})

	created := of(container.CreateItem(ctx, key("a"), encode(t, body), withContent())).must(t)
	equal(t, "status", created.RawResponse.StatusCode, 201)
	wantCharge(t, created.Response)
	value := decode(t, created.Value)
	sameJSON(t, "name", value["name"], "first")
	sameJSON(t, "_etag", value["_etag"], string(created.ETag))
	for _, name := range []string{"_rid", "_self", "_ts", "_attachments"} {
		if value[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	if created.SessionToken == nil || *created.SessionToken == "" {
		t.Error("no session token")
	}

	read := of(container.ReadItem(ctx, key("a"), "1", nil)).must(t)
	equal(t, "etag", read.ETag, created.ETag)
	sameJSON(t, "list", decode(t, read.Value)["list"], body["list"])

	body["name"] = "second"
	replaced := of(container.ReplaceItem(ctx, key("a"), "1", encode(t, body), withContent())).must(t)
	equal(t, "status", replaced.RawResponse.StatusCode, 200)
	sameJSON(t, "name", decode(t, replaced.Value)["name"], "second")
	sameJSON(t, "rid", decode(t, replaced.Value)["_rid"], value["_rid"])
	if replaced.ETag == created.ETag {
		t.Error("the etag did not change")
	}

	gone := of(container.DeleteItem(ctx, key("a"), "1", nil)).must(t)
	equal(t, "status", gone.RawResponse.StatusCode, 204)
	contains(t, of(container.ReadItem(ctx, key("a"), "1", nil)).fails(t, 404, ""), "NotFound")
	of(container.DeleteItem(ctx, key("a"), "1", nil)).fails(t, 404, "")
	of(container.ReplaceItem(ctx, key("a"), "1", encode(t, body), nil)).fails(t, 404, "")
}

func TestWritesAreAnsweredWithoutBodyByDefault(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	created := of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), nil)).must(t)
	equal(t, "create", len(created.Value), 0)
	replaced := of(container.ReplaceItem(ctx, key("a"), "1", encode(t, item("1", "a")), nil)).must(t)
	equal(t, "replace", len(replaced.Value), 0)
	upserted := of(container.UpsertItem(ctx, key("a"), encode(t, item("1", "a")), nil)).must(t)
	equal(t, "upsert", len(upserted.Value), 0)
	for _, etag := range []azcore.ETag{created.ETag, replaced.ETag, upserted.ETag} {
		if !strings.HasPrefix(string(etag), `"`) {
			t.Errorf("etag %q has no quotes", etag)
		}
	}
}

func TestUpsert(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	inserted := of(container.UpsertItem(ctx, key("a"), encode(t, item("1", "a", object{"n": 1})), withContent())).must(t)
	equal(t, "insert", inserted.RawResponse.StatusCode, 201)
	updated := of(container.UpsertItem(ctx, key("a"), encode(t, item("1", "a", object{"n": 2})), withContent())).must(t)
	equal(t, "update", updated.RawResponse.StatusCode, 200)
	sameJSON(t, "rid", decode(t, updated.Value)["_rid"], decode(t, inserted.Value)["_rid"])
	sameJSON(t, "n", decode(t, of(container.ReadItem(ctx, key("a"), "1", nil)).must(t).Value)["n"], 2)
}

func TestConflictOnCreate(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), nil)).must(t)
	message := of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), nil)).fails(t, 409, "")
	contains(t, message, "already exists")
	// The id is unique inside one logical partition only.
	of(container.CreateItem(ctx, key("b"), encode(t, item("1", "b")), nil)).must(t)
}

func TestETagPreconditions(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	body := encode(t, item("1", "a", object{"n": 1}))
	first := of(container.CreateItem(ctx, key("a"), body, nil)).must(t).ETag
	second := of(container.ReplaceItem(ctx, key("a"), "1", body, &azcosmos.ItemOptions{IfMatchEtag: &first})).must(t).ETag

	stale := &azcosmos.ItemOptions{IfMatchEtag: &first}
	contains(t, of(container.ReplaceItem(ctx, key("a"), "1", body, stale)).fails(t, 412, ""), "PreconditionFailed")
	of(container.UpsertItem(ctx, key("a"), body, stale)).fails(t, 412, "")
	of(container.DeleteItem(ctx, key("a"), "1", stale)).fails(t, 412, "")
	patch := azcosmos.PatchOperations{}
	patch.AppendSet("/n", 5)
	of(container.PatchItem(ctx, key("a"), "1", patch, stale)).fails(t, 412, "")

	any := azcore.ETagAny
	of(container.PatchItem(ctx, key("a"), "1", patch, &azcosmos.ItemOptions{IfMatchEtag: &any})).must(t)
	of(container.DeleteItem(ctx, key("a"), "1", &azcosmos.ItemOptions{IfMatchEtag: &second})).fails(t, 412, "")
	of(container.DeleteItem(ctx, key("a"), "1", &azcosmos.ItemOptions{IfMatchEtag: &any})).must(t)
	of(container.ReplaceItem(ctx, key("a"), "1", body, stale)).fails(t, 404, "")
	// A precondition on an upsert that inserts has nothing to compare with.
	equal(t, "insert", of(container.UpsertItem(ctx, key("a"), body, stale)).must(t).RawResponse.StatusCode, 201)
}

func TestPatchOperations(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	body := item("1", "a", object{"name": "x", "count": 40, "old": true, "list": []any{"a", "c"}, "sub": object{"p": 1}})
	of(container.CreateItem(ctx, key("a"), encode(t, body), nil)).must(t)
	patch := azcosmos.PatchOperations{}
	patch.AppendSet("/name", "y")
	patch.AppendAdd("/list/1", "b")
	patch.AppendAdd("/list/-", "d")
	patch.AppendReplace("/sub/p", 2)
	patch.AppendAdd("/sub/q", object{"new": []any{}})
	patch.AppendRemove("/old")
	patch.AppendIncrement("/count", 2)
	patch.AppendIncrement("/fresh", -7)
	patched := of(container.PatchItem(ctx, key("a"), "1", patch, withContent())).must(t)
	equal(t, "status", patched.RawResponse.StatusCode, 200)
	value := decode(t, patched.Value)
	sameJSON(t, "name", value["name"], "y")
	sameJSON(t, "list", value["list"], []any{"a", "b", "c", "d"})
	sameJSON(t, "sub", value["sub"], object{"p": 2, "q": object{"new": []any{}}})
	sameJSON(t, "count", value["count"], 42)
	sameJSON(t, "fresh", value["fresh"], -7)
	if _, found := value["old"]; found {
		t.Error("old was not removed")
	}
}

func TestPatchCondition(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a", object{"n": 1})), nil)).must(t)
	patch := azcosmos.PatchOperations{}
	patch.SetCondition("from c where c.n = 2")
	patch.AppendSet("/n", 10)
	of(container.PatchItem(ctx, key("a"), "1", patch, nil)).fails(t, 412, "")
	patch = azcosmos.PatchOperations{}
	patch.SetCondition("from c where c.n = 1")
	patch.AppendSet("/n", 10)
	sameJSON(t, "n", decode(t, of(container.PatchItem(ctx, key("a"), "1", patch, withContent())).must(t).Value)["n"], 10)
}

func TestPatchesThatAreRefused(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a", object{"s": "text", "list": []any{1}})), nil)).must(t)
	before := of(container.ReadItem(ctx, key("a"), "1", nil)).must(t).ETag
	for name, build := range map[string]func(*azcosmos.PatchOperations){
		"id":               func(p *azcosmos.PatchOperations) { p.AppendSet("/id", "2") },
		"partition key":    func(p *azcosmos.PatchOperations) { p.AppendSet("/pk", "b") },
		"system property":  func(p *azcosmos.PatchOperations) { p.AppendSet("/_ts", 1) },
		"missing parent":   func(p *azcosmos.PatchOperations) { p.AppendAdd("/no/such", 1) },
		"replace nothing":  func(p *azcosmos.PatchOperations) { p.AppendReplace("/none", 1) },
		"remove nothing":   func(p *azcosmos.PatchOperations) { p.AppendRemove("/none") },
		"increment text":   func(p *azcosmos.PatchOperations) { p.AppendIncrement("/s", 1) },
		"index too large":  func(p *azcosmos.PatchOperations) { p.AppendAdd("/list/5", 1) },
		"no leading slash": func(p *azcosmos.PatchOperations) { p.AppendSet("s", 1) },
		"eleven": func(p *azcosmos.PatchOperations) {
			for n := range 11 {
				p.AppendSet(text("/n%d", n), n)
			}
		},
		"second of two": func(p *azcosmos.PatchOperations) {
			p.AppendSet("/s", "changed")
			p.AppendRemove("/none")
		},
	} {
		t.Run(name, func(t *testing.T) {
			patch := azcosmos.PatchOperations{}
			build(&patch)
			of(container.PatchItem(ctx, key("a"), "1", patch, nil)).fails(t, 400, "")
		})
	}
	equal(t, "etag", of(container.ReadItem(ctx, key("a"), "1", nil)).must(t).ETag, before)
	patch := azcosmos.PatchOperations{}
	patch.AppendSet("/n", 1)
	of(container.PatchItem(ctx, key("a"), "absent", patch, nil)).fails(t, 404, "")
}

func TestUniqueKeys(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	properties := hashed("u", "/pk")
	properties.UniqueKeyPolicy = &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/email", "/team/name"}}}}
	container := newContainer(t, properties)
	person := func(id, pk, email, team string) []byte {
		return encode(t, item(id, pk, object{"email": email, "team": object{"name": team}}))
	}
	of(container.CreateItem(ctx, key("a"), person("1", "a", "x", "red"), nil)).must(t)
	of(container.CreateItem(ctx, key("a"), person("2", "a", "x", "blue"), nil)).must(t)
	of(container.CreateItem(ctx, key("b"), person("1", "b", "x", "red"), nil)).must(t)
	of(container.CreateItem(ctx, key("a"), person("3", "a", "x", "red"), nil)).fails(t, 409, "")
	of(container.UpsertItem(ctx, key("a"), person("3", "a", "x", "red"), nil)).fails(t, 409, "")
	of(container.ReplaceItem(ctx, key("a"), "2", person("2", "a", "x", "red"), nil)).fails(t, 409, "")
	patch := azcosmos.PatchOperations{}
	patch.AppendSet("/team/name", "red")
	of(container.PatchItem(ctx, key("a"), "2", patch, nil)).fails(t, 409, "")
	// Freed by a delete, taken again by the next one.
	of(container.DeleteItem(ctx, key("a"), "1", nil)).must(t)
	of(container.PatchItem(ctx, key("a"), "2", patch, nil)).must(t)
	of(container.CreateItem(ctx, key("a"), person("1", "a", "x", "blue"), nil)).must(t)
}

func TestTimeToLive(t *testing.T) {
	t.Parallel()
	ctx := deadline(t)
	properties := hashed("t", "/pk")
	properties.DefaultTimeToLive = to.Ptr[int32](1)
	container := newContainer(t, properties)
	of(container.CreateItem(ctx, key("a"), encode(t, item("short", "a")), nil)).must(t)
	of(container.CreateItem(ctx, key("a"), encode(t, item("long", "a", object{"ttl": 600})), nil)).must(t)
	of(container.CreateItem(ctx, key("a"), encode(t, item("ever", "a", object{"ttl": -1})), nil)).must(t)
	for end := time.Now().Add(10 * time.Second); ; {
		_, err := container.ReadItem(ctx, key("a"), "short", nil)
		if err != nil {
			of(0, err).fails(t, 404, "")
			break
		}
		if time.Now().After(end) {
			t.Fatal("the item did not expire")
		}
		time.Sleep(100 * time.Millisecond)
	}
	of(container.ReadItem(ctx, key("a"), "long", nil)).must(t)
	of(container.ReadItem(ctx, key("a"), "ever", nil)).must(t)
	of(container.CreateItem(ctx, key("a"), encode(t, item("short", "a")), nil)).must(t)
	for _, ttl := range []any{0, -2, "5", 1.5, nil} {
		of(container.CreateItem(ctx, key("a"), encode(t, item("bad", "a", object{"ttl": ttl})), nil)).fails(t, 400, "")
	}
}

func TestSizeLimit(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	fits := strings.Repeat("x", 2*1024*1024-2048)
	of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a", object{"text": fits})), nil)).must(t)
	read := of(container.ReadItem(ctx, key("a"), "1", nil)).must(t)
	equal(t, "unchanged", decode(t, read.Value)["text"] == any(fits), true)
	large := strings.Repeat("x", 2*1024*1024+1)
	of(container.CreateItem(ctx, key("a"), encode(t, item("2", "a", object{"text": large})), nil)).fails(t, 413, "")
}

func TestBodiesThatAreRefused(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	for name, body := range map[string]string{
		"no id":        `{"pk":"a"}`,
		"number id":    `{"id":1,"pk":"a"}`,
		"empty id":     `{"id":"","pk":"a"}`,
		"long id":      `{"id":"` + strings.Repeat("i", 1024) + `","pk":"a"}`,
		"array":        `[{"id":"1","pk":"a"}]`,
		"text":         `"1"`,
		"not JSON":     `{"id":"1","pk":"a"`,
		"object key":   `{"id":"1","pk":{"x":1}}`,
		"deep nesting": `{"id":"1","pk":"a","x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := container.CreateItem(ctx, key("a"), []byte(body), nil)
			if err == nil || !strings.Contains(err.Error(), "400") {
				t.Fatalf("want 400, got %v", err)
			}
		})
	}
	of(container.CreateItem(ctx, key("a"), []byte(`{"id":"1","pk":"b"}`), nil)).fails(t, 400, "1001")
	of(container.UpsertItem(ctx, key("a"), []byte(`{"id":"1","pk":"b"}`), nil)).fails(t, 400, "1001")
	of(container.CreateItem(ctx, key("a"), []byte(`{"id":"1","pk":"a"}`), nil)).must(t)
	of(container.ReplaceItem(ctx, key("a"), "1", []byte(`{"id":"1","pk":"b"}`), nil)).fails(t, 400, "1001")
}

// A replace may give the item another id; it stays the same resource.
func TestReplaceRenames(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	first := of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), withContent())).must(t)
	of(container.CreateItem(ctx, key("a"), encode(t, item("3", "a")), nil)).must(t)
	renamed := of(container.ReplaceItem(ctx, key("a"), "1", encode(t, item("2", "a")), withContent())).must(t)
	sameJSON(t, "rid", decode(t, renamed.Value)["_rid"], decode(t, first.Value)["_rid"])
	of(container.ReadItem(ctx, key("a"), "1", nil)).fails(t, 404, "")
	of(container.ReadItem(ctx, key("a"), "2", nil)).must(t)
	of(container.ReplaceItem(ctx, key("a"), "2", encode(t, item("3", "a")), nil)).fails(t, 409, "")
}

func TestMissingContainerAndDatabase(t *testing.T) {
	t.Parallel()
	ctx, client := deadline(t), newClient(t)
	database := newDatabase(t, client, nil)
	container := of(database.NewContainer("absent")).must(t)
	// Item reads have no sub-status, as in the service's gateway: clients that want one set it themselves.
	of(container.ReadItem(ctx, key("a"), "1", nil)).fails(t, 404, "")
	of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), nil)).fails(t, 404, "1003")
	elsewhere := of(client.NewContainer(uniqueName("absent"), "absent")).must(t)
	of(elsewhere.ReadItem(ctx, key("a"), "1", nil)).fails(t, 404, "1003")
}

func TestSessionTokens(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	created := of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), nil)).must(t)
	of(container.ReadItem(ctx, key("a"), "1", &azcosmos.ItemOptions{SessionToken: created.SessionToken})).must(t)
	eventual := azcosmos.ConsistencyLevelEventual
	of(container.ReadItem(ctx, key("a"), "1", &azcosmos.ItemOptions{ConsistencyLevel: &eventual})).must(t)

	// A token from the future cannot be served.
	last := strings.LastIndex(*created.SessionToken, "#")
	ahead := (*created.SessionToken)[:last+1] + "999999999999"
	of(container.ReadItem(ctx, key("a"), "1", &azcosmos.ItemOptions{SessionToken: &ahead})).fails(t, 404, "1002")
	of(container.ReadItem(ctx, key("a"), "1", &azcosmos.ItemOptions{SessionToken: to.Ptr("no token")})).fails(t, 400, "")
}

func TestNumbersAndTextSurvive(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	body := `{"id":"1","pk":"a","numbers":[0,-1,1.5,9007199254740991,1e300,5e-324,0.1],"text":["é","日本","\u0000","😀","\"\\"],"empty":[{},[],""],"none":null,"_mine":1}`
	of(container.CreateItem(ctx, key("a"), []byte(body), nil)).must(t)
	read := decode(t, of(container.ReadItem(ctx, key("a"), "1", nil)).must(t).Value)
	sent := decode(t, []byte(body))
	for name, value := range sent {
		sameJSON(t, name, read[name], value)
	}
}

func TestSystemPropertiesInTheBodyAreReplaced(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	body := encode(t, item("1", "a", object{"_etag": "mine", "_ts": 1, "_rid": "mine", "_self": "mine"}))
	value := decode(t, of(container.CreateItem(ctx, key("a"), body, withContent())).must(t).Value)
	if value["_etag"] == "mine" || value["_ts"] == 1.0 || value["_rid"] == "mine" || value["_self"] == "mine" {
		t.Errorf("system properties were taken from the body: %v", value)
	}
}

func TestIndexingDirective(t *testing.T) {
	t.Parallel()
	ctx, container := deadline(t), newItems(t)
	exclude := azcosmos.IndexingDirectiveExclude
	of(container.CreateItem(ctx, key("a"), encode(t, item("1", "a")), &azcosmos.ItemOptions{IndexingDirective: &exclude})).must(t)
	include := azcosmos.IndexingDirectiveInclude
	of(container.CreateItem(ctx, key("a"), encode(t, item("2", "a")), &azcosmos.ItemOptions{IndexingDirective: &include})).must(t)
}
