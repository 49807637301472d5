// The frame: bar, tree, and the current page.
import { signal } from '@preact/signals';
import { lazy } from './ui/lazy';
import { useEffect } from 'preact/hooks';
import { SignIn } from './resources/sign-in';
import { Tree } from './resources/tree';
import { Home } from './resources/home';
import { ContainerPage } from './resources/container';
import { Palette, paletteOpen } from './ui/palette';
import { hrefOf, route } from './state/route';
import { session, signOut, start } from './state/session';
import { isDark, theme } from './state/theme';
import { Icon, Logo } from './ui/icons';
import { Button, Spinner, Toasts } from './ui/parts';

const ServerPage = lazy(() => import('./server/page').then((module) => module.ServerPage));
const DatabasePage = lazy(() => import('./resources/database').then((module) => module.DatabasePage));

const treeOpen = signal(false);

export function App() {
  useEffect(() => {
    void start();
    const keys = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        paletteOpen.value = !paletteOpen.value;
      }
    };
    window.addEventListener('keydown', keys);
    return () => window.removeEventListener('keydown', keys);
  }, []);
  useEffect(() => {
    treeOpen.value = false;
    const at = route.value;
    document.title = at.page === 'container' ? `${at.container} · ${at.database} · Orrery` : at.page === 'database' ? `${at.database} · Orrery` : 'Orrery';
  }, [route.value]);

  const who = session.value;
  if (who.state === 'starting') {
    return (
      <div class="frame">
        <header class="bar">
          <span class="brand">
            <Logo />
            <span>Orrery</span>
          </span>
        </header>
        <div class="centre">
          <Spinner label="Signing in" />
        </div>
      </div>
    );
  }
  if (who.state === 'out') return <SignIn reason={who.reason} />;
  const at = route.value;
  const mac = navigator.platform.startsWith('Mac');
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById('main')?.focus(); }}>
        Skip to content
      </a>
      <header class="bar">
        <Button icon="menu" kind="quiet" class="only-narrow" label="Databases" aria-expanded={treeOpen.value} onClick={() => (treeOpen.value = !treeOpen.value)} />
        <a class="brand" href={hrefOf({ page: 'home' })}>
          <Logo />
          <span>Orrery</span>
        </a>
        <button type="button" class="search-button" onClick={() => (paletteOpen.value = true)}>
          <Icon name="search" />
          <span class="search-text">Go to a container, or do something…</span>
          <kbd>{mac ? '⌘K' : 'Ctrl K'}</kbd>
        </button>
        <span class="bar-space" />
        {who.admin && (
          <a class={`bar-link ${at.page === 'server' ? 'current' : ''}`} href={hrefOf({ page: 'server' })} aria-current={at.page === 'server' ? 'page' : undefined}>
            <Icon name="server" />
            <span class="not-narrow">{location.host}</span>
            <span class="only-narrow visually-hidden">Server</span>
          </a>
        )}
        <Button
          icon={isDark.value ? 'sun' : 'moon'}
          kind="quiet"
          label={isDark.value ? 'Light theme' : 'Dark theme'}
          onClick={() => (theme.value = isDark.value ? 'light' : 'dark')}
        />
        {!who.wellKnown && <Button icon="out" kind="quiet" label="Sign out" onClick={signOut} />}
      </header>
      <div class="below">
        <Tree open={treeOpen.value} onClose={() => (treeOpen.value = false)} />
        <main id="main" tabIndex={-1}>
          {at.page === 'home' && <Home />}
          {at.page === 'server' && <ServerPage />}
          {at.page === 'database' && <DatabasePage key={at.database} database={at.database} />}
          {at.page === 'container' && <ContainerPage key={`${at.database}/${at.container}`} database={at.database} container={at.container} tab={at.tab} />}
        </main>
      </div>
      <Palette />
      <Toasts />
    </div>
  );
}
