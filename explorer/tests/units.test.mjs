// Parts of the page that need no browser.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { load } from './modules.mjs';

test('requests are signed for the resource that their path names', async () => {
  const { authorization, resourceOf } = await load('api/sign.ts');
  assert.deepEqual(resourceOf('/dbs/ToDoList/colls'), { type: 'colls', link: 'dbs/ToDoList' });
  assert.deepEqual(resourceOf('/dbs/a%20b/colls/c/docs/x%2Fy'), { type: 'docs', link: 'dbs/a b/colls/c/docs/x/y' });
  assert.deepEqual(resourceOf('/offers/AbC'), { type: 'offers', link: 'abc' });
  assert.deepEqual(resourceOf('/dbs/d/colls/c/operations/partitionkeydelete'), { type: 'colls', link: 'dbs/d/colls/c' });
  assert.deepEqual(resourceOf('/'), { type: '', link: '' });
  // The example of the service's documentation.
  const key = 'dsZQi3KtZmCv1ljt3VNWNm7sQUF1y5rJfC6kv5JiwvW0EndXdDku/dkKBp8/ufDToSxLzR4y+O/0H/t4bQtVNw==';
  const value = await authorization({ kind: 'key', key }, 'GET', '/dbs/ToDoList', 'Thu, 27 Apr 2017 00:51:12 GMT');
  assert.equal(value, 'type%3Dmaster%26ver%3D1.0%26sig%3Dc09PEVJrgp2uQRkr934kFbTqhByc7TVr3OHyqlu%2Bc%2Bc%3D'.toString());
});

test('errors say what the service says, without its wrapping', async () => {
  const { describe } = await load('api/client.ts');
  const plain = describe(404, 0, JSON.stringify({ code: 'NotFound', message: 'Message: {"Errors":["Resource Not Found."]}\r\nActivityId: 1, Request URI: /x' }), 1, '1');
  assert.equal(plain.message, 'Resource Not Found.');
  const query = describe(400, 0, JSON.stringify({ code: 'BadRequest', message: 'Message: {"errors":[{"severity":"Error","location":{"start":7,"end":9},"code":"SC1001","message":"Syntax error"}]}\r\nActivityId: 1' }), 0, '');
  assert.deepEqual(query.faults, [{ message: 'Syntax error', code: 'SC1001', start: 7, end: 9 }]);
});

test('files become items', async () => {
  const { itemsOf, csvRecords } = await load('items/files.ts');
  const read = async (name, text) => {
    const found = [];
    for await (const item of itemsOf(new File([text], name), () => {})) found.push(item);
    return found;
  };
  assert.deepEqual(await read('a.jsonl', '{"id":"1","n":1}\n\n{"id":"2"}'), [{ id: '1', n: 1 }, { id: '2' }]);
  assert.deepEqual(await read('a.json', ' [{"id":"1"},{"id":7}]'), [{ id: '1' }, { id: '7' }]);
  assert.deepEqual(await read('a.csv', 'id,n,t,z\r\n1,2.5,"a ""b"", c",\r\n2,,007,true\r\n'), [{ id: '1', n: 2.5, t: 'a "b", c' }, { id: '2', t: '007', z: true }]);
  await assert.rejects(read('a.jsonl', '{"id":"1"}\n{'), /Line 2/);
  const records = [];
  for await (const record of csvRecords(['a,"two', 'lines",c'], ',')) records.push(record);
  assert.deepEqual(records, [['a', 'two\nlines', 'c']]);
});

test('quantiles lie inside their buckets', async () => {
  const { operationsOf, parseMetrics } = await load('server/metrics.ts');
  const text = [
    '# TYPE orrery_requests counter',
    'orrery_requests_total{resource="item",operation="read",status="200"} 90',
    'orrery_requests_total{resource="item",operation="read",status="404"} 10',
    'orrery_request_duration_seconds_bucket{le="0.001",resource="item",operation="read"} 50',
    'orrery_request_duration_seconds_bucket{le="0.01",resource="item",operation="read"} 100',
    'orrery_request_duration_seconds_bucket{le="+Inf",resource="item",operation="read"} 100',
    '# EOF',
  ].join('\n');
  const [read] = operationsOf(parseMetrics(text));
  assert.equal(read.requests, 100);
  assert.equal(read.p50, 0.001);
  assert.ok(read.p99 > 0.009 && read.p99 <= 0.01);
  assert.deepEqual(read.statuses, [['200', 90], ['404', 10]]);
});

test('ranges of the hash are laid out by their width', async () => {
  const { layOut, levelOf } = await load('partitions/layout.ts');
  const placed = layOut([
    { id: '2', min: '20000000', max: 'FF' },
    { id: '1', min: '', max: '20000000' },
  ]);
  assert.deepEqual(placed, [{ id: '1', from: 0, to: 0.5 }, { id: '2', from: 0.5, to: 1 }]);
  // Bounds of the first version of keys are no fractions of that space.
  assert.deepEqual(layOut([{ id: '0', min: '', max: '05C1DFFF' }, { id: '1', min: '05C1DFFF', max: 'FF' }])[0].id, '0');
  assert.equal(levelOf(0, 400, 0), 0);
  assert.equal(levelOf(390, 400, 0), 4);
  assert.equal(levelOf(10, 0, 10), 4);
});

test('keys become filters, and throttling becomes advice', async () => {
  const { filterForKey } = await load('partitions/keys.ts');
  assert.equal(filterForKey(['/a/b', '/c'], '["x\\"y",1]'), 'c["a"]["b"] = "x\\"y" AND c["c"] = 1');
  assert.equal(filterForKey(['/a'], '[{}]'), 'NOT IS_DEFINED(c["a"])');
  const { explainThrottles } = await load('partitions/throttles.tsx');
  const event = (part) => ({ atMs: 0, container: 'x', partition: '3', partitionKey: '["hot"]', keySharePercent: 90, budgetPerSecond: 100, cause: "the partition's budget for the second was spent", retryAfterMs: 5, wouldPassAtMs: 5, ...part });
  assert.match(explainThrottles([event({})], 4, 400), /one key, \["hot"\].*spreads/s);
  assert.match(explainThrottles([event({ keySharePercent: 5 })], 4, 400), /All were in partition 3/);
  assert.match(explainThrottles([event({ keySharePercent: 5 }), event({ keySharePercent: 2, partition: '1' })], 4, 400), /More throughput helps/);
  assert.equal(explainThrottles([], 4, 400), null);
});

test('rows with a category and a number suggest a chart', async () => {
  const { chartable, suggestsChart } = await load('query/chartable.ts');
  assert.ok(suggestsChart([{ city: 'a', n: 1 }, { city: 'b', n: 2 }]));
  assert.ok(!suggestsChart([{ city: 'a', n: 1 }, { city: 'a', n: 2 }]));
  assert.ok(!suggestsChart([{ id: 'a', n: 1 }, { id: 'b', n: 2 }]));
  assert.ok(!suggestsChart([1, 2, 3]));
  assert.deepEqual(chartable([{ at: '2026-01-01', n: 1 }, { at: '2026-01-02', n: 2 }]).across, ['at', 'n', '#']);
});
