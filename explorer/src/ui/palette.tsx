// The command palette: Ctrl-K, a few letters, Enter.
import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { creating } from '../resources/tree';
import { databases, openDatabase } from '../state/resources';
import { TABS, go, route } from '../state/route';
import { isAdmin, signOut } from '../state/session';
import { isDark, theme } from '../state/theme';
import { Icon, type IconName } from './icons';

export const paletteOpen = signal(false);

interface Command {
  title: string;
  detail?: string;
  icon: IconName;
  run: () => void;
}

function commands(): Command[] {
  const at = route.value;
  const found: Command[] = [];
  if (at.page === 'container') {
    for (const tab of TABS) {
      if (tab === at.tab) continue;
      found.push({ title: `Show ${tab}`, detail: at.container, icon: 'chevron', run: () => go({ ...at, tab }) });
    }
  }
  for (const node of databases.value ?? []) {
    for (const container of node.containers ?? []) {
      found.push({
        title: container.id,
        detail: node.resource.id,
        icon: 'container',
        run: () => go({ page: 'container', database: node.resource.id, container: container.id, tab: at.page === 'container' ? at.tab : 'items' }),
      });
    }
    found.push({ title: node.resource.id, detail: 'database', icon: 'database', run: () => go({ page: 'database', database: node.resource.id }) });
  }
  found.push({ title: 'New database', icon: 'plus', run: () => (creating.value = { what: 'database' }) });
  found.push({ title: 'New container', icon: 'plus', run: () => (creating.value = { what: 'container', database: at.page === 'container' || at.page === 'database' ? at.database : null }) });
  if (isAdmin()) found.push({ title: 'Server', detail: 'requests, latency, health', icon: 'server', run: () => go({ page: 'server' }) });
  found.push({ title: isDark.value ? 'Light theme' : 'Dark theme', icon: isDark.value ? 'sun' : 'moon', run: () => (theme.value = isDark.value ? 'light' : 'dark') });
  found.push({ title: 'Use the system’s theme', icon: 'sun', run: () => (theme.value = 'system') });
  found.push({ title: 'Start page', icon: 'chevron', run: () => go({ page: 'home' }) });
  found.push({ title: 'Sign in with another key', icon: 'key', run: signOut });
  return found;
}

/** How well letters match a text: all in order; better at the start and close together. */
function score(text: string, letters: string): number {
  const found = text.toLowerCase().indexOf(letters);
  if (found >= 0) return 1000 - found;
  let at = 0;
  for (const letter of letters) {
    at = text.toLowerCase().indexOf(letter, at) + 1;
    if (at === 0) return -1;
  }
  return 100 - at;
}

export function Palette() {
  return paletteOpen.value ? <OpenPalette /> : null;
}

function OpenPalette() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [text, setText] = useState('');
  const [active, setActive] = useState(0);
  useEffect(() => {
    dialog.current!.showModal();
    for (const node of databases.value ?? []) if (!node.containers) void openDatabase(node.resource.id);
  }, []);
  const letters = text.trim().toLowerCase();
  const found = commands()
    .map((command) => ({ command, rank: letters ? Math.max(score(command.title, letters), score(`${command.detail ?? ''} ${command.title}`, letters) - 1) : 0 }))
    .filter(({ rank }) => rank >= 0)
    .sort((a, b) => b.rank - a.rank)
    .slice(0, 50)
    .map(({ command }) => command);
  const close = () => (paletteOpen.value = false);
  const run = (command: Command | undefined) => {
    if (!command) return;
    close();
    command.run();
  };
  const keys = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) {
      event.preventDefault();
      const next = (active + move + found.length) % Math.max(1, found.length);
      setActive(next);
      document.getElementById(`command-${next}`)?.scrollIntoView({ block: 'nearest' });
    } else if (event.key === 'Enter') {
      event.preventDefault();
      run(found[active]);
    }
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Commands" onCancel={close} onMouseDown={(event) => event.target === dialog.current && close()}>
      <div class="palette-box" onKeyDown={keys}>
        <div class="palette-input">
          <Icon name="search" />
          <input
            role="combobox"
            aria-expanded="true"
            aria-controls="commands"
            aria-activedescendant={found.length ? `command-${active}` : undefined}
            aria-label="Go to a container, or do something"
            placeholder="Go to a container, or do something…"
            value={text}
            autofocus
            onInput={(event) => {
              setText(event.currentTarget.value);
              setActive(0);
            }}
          />
        </div>
        <ul id="commands" role="listbox" aria-label="Commands">
          {found.map((command, at) => (
            <li key={`${command.detail}/${command.title}`} id={`command-${at}`} role="option" aria-selected={at === active} onMouseMove={() => at !== active && setActive(at)} onClick={() => run(command)}>
              <Icon name={command.icon} />
              <span>{command.title}</span>
              {command.detail && <span class="muted">{command.detail}</span>}
            </li>
          ))}
        </ul>
        {found.length === 0 && <p class="palette-none">Nothing is called that.</p>}
      </div>
    </dialog>
  );
}
