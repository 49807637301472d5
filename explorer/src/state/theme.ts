// Light or dark: the system's setting, unless the user has chosen.
import { effect, signal } from '@preact/signals';

export type Theme = 'system' | 'light' | 'dark';
const STORED = 'orrery.theme';

export const theme = signal<Theme>((localStorage.getItem(STORED) as Theme | null) ?? 'system');
const system = window.matchMedia('(prefers-color-scheme: dark)');
export const isDark = signal(system.matches);

effect(() => {
  const chosen = theme.value;
  isDark.value = chosen === 'system' ? system.matches : chosen === 'dark';
  document.documentElement.dataset.theme = isDark.value ? 'dark' : 'light';
  if (chosen === 'system') localStorage.removeItem(STORED);
  else localStorage.setItem(STORED, chosen);
});
system.addEventListener('change', () => {
  if (theme.value !== 'system') return;
  isDark.value = system.matches;
  document.documentElement.dataset.theme = isDark.value ? 'dark' : 'light';
});
