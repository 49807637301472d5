// Who is signed in. The credential lives in this tab: in memory, and in its session storage so that a reload keeps it.
import { signal } from '@preact/signals';
import { readServer } from '../api/calls';
import { ApiError, get, setCredential } from '../api/client';
import { type Credential, WELL_KNOWN_KEY, canSign } from '../api/sign';
import type { ServerInfo } from '../api/shapes';

export type Session =
  | { state: 'starting' }
  | { state: 'out'; reason: string | null }
  | {
      state: 'in';
      /** Whether `/_orrery` is accessible; it is not with resource tokens. */
      admin: boolean;
      server: ServerInfo | null;
      wellKnown: boolean;
    };

export const session = signal<Session>({ state: 'starting' });

const STORED = 'orrery.credential';

export async function start(): Promise<void> {
  if (!canSign()) {
    session.value = { state: 'out', reason: 'insecure' };
    return;
  }
  const stored = sessionStorage.getItem(STORED);
  if (stored && (await tryWith(JSON.parse(stored) as Credential)) === null) return;
  const reason = await tryWith({ kind: 'key', key: WELL_KNOWN_KEY });
  if (reason !== null) session.value = { state: 'out', reason: null };
}

/** Returns the reason for a failure, or null. */
export async function signIn(credential: Credential): Promise<string | null> {
  const reason = await tryWith(credential);
  if (reason === null) sessionStorage.setItem(STORED, JSON.stringify(credential));
  return reason;
}

export function signOut(): void {
  sessionStorage.removeItem(STORED);
  setCredential(null);
  session.value = { state: 'out', reason: null };
}

async function tryWith(credential: Credential): Promise<string | null> {
  setCredential(credential);
  try {
    const [, server] = await Promise.all([get('/'), credential.kind === 'key' ? readServer() : null]);
    session.value = { state: 'in', admin: server !== null, server, wellKnown: credential.kind === 'key' && credential.key === WELL_KNOWN_KEY };
    return null;
  } catch (error) {
    setCredential(null);
    if (error instanceof ApiError) return error.status === 401 ? 'The server does not accept this key or token.' : error.message;
    return String(error);
  }
}

export const isAdmin = (): boolean => session.value.state === 'in' && session.value.admin;
