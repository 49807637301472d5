// The current route. It is in the URL fragment, so that pages can be linked and the back button works.
import { computed, signal } from '@preact/signals';

export const TABS = ['items', 'query', 'partitions', 'scripts', 'changes', 'advisor', 'settings'] as const;
export type Tab = (typeof TABS)[number];

export type Route =
  | { page: 'home' }
  | { page: 'server' }
  | { page: 'database'; database: string }
  | { page: 'container'; database: string; container: string; tab: Tab };

function parse(hash: string): Route {
  const [kind, database, container, tab] = hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
  if (kind === 'server') return { page: 'server' };
  if (kind !== 'db' || !database) return { page: 'home' };
  if (!container) return { page: 'database', database };
  return { page: 'container', database, container, tab: TABS.find((known) => known === tab) ?? 'items' };
}

export function hrefOf(route: Route): string {
  const link = (...segments: string[]) => `#/${segments.map(encodeURIComponent).join('/')}`;
  switch (route.page) {
    case 'home':
      return '#/';
    case 'server':
      return '#/server';
    case 'database':
      return link('db', route.database);
    case 'container':
      return link('db', route.database, route.container, route.tab);
  }
}

export const route = signal<Route>(parse(location.hash));
window.addEventListener('hashchange', () => {
  route.value = parse(location.hash);
});

export function go(to: Route): void {
  location.hash = hrefOf(to);
}

/** The container that is shown. */
export const place = computed(() => (route.value.page === 'container' ? { database: route.value.database, container: route.value.container } : null));

/** What one tab passes to another: a query to run, a filter to set. Consumed once. */
export const handover = signal<{ filter?: string; query?: string; key?: unknown[] } | null>(null);
