// A container: its name, summary and tabs.
import { useState } from 'preact/hooks';
import { type ContainerDefinition, type Usage, readOffer } from '../api/calls';
import { ItemsPage } from '../items/page';
import { lookAt } from '../state/resources';
import { TABS, type Tab, go, hrefOf } from '../state/route';
import { isAdmin } from '../state/session';
import * as format from '../ui/format';
import { lazy } from '../ui/lazy';
import { Notice, Spinner, useLoaded } from '../ui/parts';
import { throughputText } from './throughput-field';

const QueryPage = lazy(() => import('../query/page').then((module) => module.QueryPage));
const PartitionsPage = lazy(() => import('../partitions/page').then((module) => module.PartitionsPage));
const SettingsPage = lazy(() => import('./settings').then((module) => module.SettingsPage));
const ScriptsPage = lazy(() => import('../scripts/page').then((module) => module.ScriptsPage));
const ChangesPage = lazy(() => import('../changes/page').then((module) => module.ChangesPage));
const AdvisorPage = lazy(() => import('../advisor/page').then((module) => module.AdvisorPage));

export interface ContainerProps {
  place: { database: string; container: string };
  definition: ContainerDefinition;
  usage: Usage;
  /** Reads the definition again after something has changed it. */
  reload: () => void;
}

const NOTHING_KNOWN: Usage = { items: 0, bytes: 0 };
const TITLES: Record<Tab, string> = { items: 'Items', query: 'Query', partitions: 'Partitions', scripts: 'Scripts', changes: 'Changes', advisor: 'Advisor', settings: 'Settings' };

export function ContainerPage({ database, container, tab }: { database: string; container: string; tab: Tab }) {
  const [place] = useState({ database, container });
  const { value, error, reload } = useLoaded(() => lookAt(place), []);
  const offer = useLoaded(async () => (value && isAdmin() ? await readOffer(value.definition._rid) : null), [value]);
  // Opened tabs keep their state.
  const [opened, setOpened] = useState<Tab[]>([tab]);
  if (!opened.includes(tab)) setOpened([...opened, tab]);
  if (error && !value) {
    return (
      <div class="page">
        <Notice kind="error">{error}</Notice>
      </div>
    );
  }
  return (
    <div class="page container-page">
      <header class="page-head">
        <div class="page-title">
          <h1>
            <a class="crumb" href={hrefOf({ page: 'database', database })}>
              {database}
            </a>
            <span class="crumb-mark" aria-hidden="true">
              /
            </span>
            {container}
          </h1>
          {value && (
            <ul class="facts">
              <li title="Partition key" class="code">
                {value.definition.partitionKey.paths.join(' · ')}
              </li>
              {value.usage && <li>{format.plural(value.usage.items, 'item')}</li>}
              {value.usage && <li>{format.bytes(value.usage.bytes)}</li>}
              {offer.value && <li>{throughputText(offer.value)}</li>}
              {value.progress !== null && value.progress < 100 && <li class="fact-busy">index {value.progress} %</li>}
            </ul>
          )}
        </div>
        <nav class="page-tabs" aria-label="Container">
          {TABS.filter((name) => isAdmin() || (name !== 'partitions' && name !== 'advisor')).map((name) => (
            <a
              key={name}
              href={hrefOf({ page: 'container', database, container, tab: name })}
              aria-current={name === tab ? 'page' : undefined}
              onKeyDown={(event) => {
                const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
                if (!step) return;
                const next = TABS[(TABS.indexOf(name) + step + TABS.length) % TABS.length]!;
                go({ page: 'container', database, container, tab: next });
                (event.currentTarget.parentElement?.children[TABS.indexOf(next)] as HTMLElement | undefined)?.focus();
              }}
            >
              {TITLES[name]}
            </a>
          ))}
        </nav>
      </header>
      {!value ? (
        <div class="loading-part">
          <Spinner />
        </div>
      ) : (
        opened.map((name) => {
          const props = { place, definition: value.definition, usage: value.usage ?? NOTHING_KNOWN, reload, shown: name === tab };
          return (
            <div key={name} class="tab-page" hidden={name !== tab}>
              {name === 'items' && <ItemsPage {...props} />}
              {name === 'query' && <QueryPage {...props} />}
              {name === 'partitions' && name === tab && <PartitionsPage {...props} />}
              {name === 'settings' && name === tab && <SettingsPage {...props} />}
              {name === 'scripts' && <ScriptsPage {...props} />}
              {name === 'changes' && <ChangesPage {...props} />}
              {name === 'advisor' && <AdvisorPage {...props} />}
            </div>
          );
        })
      )}
    </div>
  );
}
