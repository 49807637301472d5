// Sample data: half a year of shop orders, generated deterministically.
import { createContainer, createDatabase } from '../api/calls';
import { ApiError } from '../api/client';
import { type LoadProgress, loadItems } from '../items/load';

export const SAMPLE = { database: 'shop', container: 'orders' };
const ORDERS = 2000;

const CITIES = ['Amsterdam', 'Berlin', 'Chicago', 'Lagos', 'Lima', 'London', 'Mumbai', 'Oslo', 'Paris', 'São Paulo', 'Seoul', 'Tokyo'];
const PRODUCTS = [
  ['Astrolabe', 240], ['Sextant', 180], ['Star chart', 24], ['Brass telescope', 420], ['Pocket sundial', 35], ['Moon globe', 95], ['Armillary sphere', 310], ['Comet print', 18], ['Meteorite', 130], ['Planisphere', 28],
] as const;
const STATES = ['paid', 'packed', 'shipped', 'delivered', 'delivered', 'delivered', 'returned'];

/** A seeded generator of numbers from 0 to 1. */
function numbers(): () => number {
  let state = 20261118;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function* orders(): Generator<Record<string, unknown>> {
  const next = numbers();
  const pick = <T>(list: readonly T[]): T => list[Math.floor(next() * list.length)]!;
  for (let number = 1; number <= ORDERS; number++) {
    // A few customers have most of the orders.
    const customer = `c-${String(1 + Math.floor(next() ** 2 * 180)).padStart(3, '0')}`;
    const placed = Date.UTC(2026, 0, 1) + Math.floor((number / ORDERS) * 181) * 86_400_000 + Math.floor(next() * 86_400_000);
    const lines = Array.from({ length: 1 + Math.floor(next() * 3) }, () => {
      const [product, price] = pick(PRODUCTS);
      return { product, price, quantity: 1 + Math.floor(next() * 3) };
    });
    yield {
      id: `order-${String(number).padStart(5, '0')}`,
      customerId: customer,
      city: pick(CITIES),
      status: pick(STATES),
      placedAt: new Date(placed).toISOString(),
      month: new Date(placed).toISOString().slice(0, 7),
      lines,
      total: lines.reduce((sum, line) => sum + line.price * line.quantity, 0),
      gift: next() < 0.15,
    };
  }
}

export const SAMPLE_QUERY = 'SELECT o.city, SUM(o.total) AS revenue, COUNT(1) AS orders\nFROM o\nGROUP BY o.city';

export async function makeSample(onProgress: (share: number) => void): Promise<void> {
  const existing = (error: unknown) => {
    if (!(error instanceof ApiError && error.status === 409)) throw error;
  };
  await createDatabase(SAMPLE.database, {}).catch(existing);
  const definition = { id: SAMPLE.container, partitionKey: { paths: ['/customerId'], kind: 'Hash', version: 2 } };
  await createContainer(SAMPLE.database, definition, { 'x-ms-cosmos-offer-autopilot-settings': '{"maxThroughput":10000}' }).catch(existing);
  const loaded = await loadItems(SAMPLE, definition as never, orders(), (progress: LoadProgress) => onProgress(progress.done / ORDERS));
  if (loaded.failed > 0) throw new Error(loaded.failures[0]);
}
