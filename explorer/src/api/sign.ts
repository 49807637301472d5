// Signs requests like every client: HMAC-SHA-256 over method, resource type, link and date.

/** What a user signs in with. */
export type Credential = { kind: 'key'; key: string } | { kind: 'token'; token: string };

/** The well-known key of emulators, accepted by servers on loopback. */
export const WELL_KNOWN_KEY = 'C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==';

/** The second and third line of the signed text, for a path whose segments are decoded. */
export function resourceOf(path: string): { type: string; link: string } {
  let segments = path.split('?')[0]!.split('/').filter(Boolean).map(decodeURIComponent);
  if (segments.length % 2 === 0 && segments.at(-2)?.toLowerCase() === 'operations') segments = segments.slice(0, -2);
  if (segments.length === 0) return { type: '', link: '' };
  const named = segments.length % 2 === 0;
  const type = (named ? segments.at(-2)! : segments.at(-1)!).toLowerCase();
  const owner = named ? segments : segments.slice(0, -1);
  if (segments[0] === 'offers') return { type, link: (owner.at(-1) ?? '').toLowerCase() };
  return { type, link: owner.join('/') };
}

const imported = new Map<string, Promise<CryptoKey>>();

function importKey(key: string): Promise<CryptoKey> {
  let known = imported.get(key);
  if (!known) {
    const bytes = Uint8Array.from(atob(key.trim()), (letter) => letter.charCodeAt(0));
    known = crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
    imported.set(key, known);
  }
  return known;
}

/** Browsers can sign only on pages from TLS or loopback. */
export const canSign = (): boolean => typeof crypto !== 'undefined' && crypto.subtle !== undefined;

/** Whether a text may be an account key. */
export function isKey(text: string): boolean {
  try {
    return atob(text.trim()).length > 0;
  } catch {
    return false;
  }
}

/** The value of the `authorization` header. */
export async function authorization(credential: Credential, method: string, path: string, date: string): Promise<string> {
  if (credential.kind === 'token') return encodeURIComponent(credential.token.trim());
  const { type, link } = resourceOf(path);
  const text = `${method.toLowerCase()}\n${type}\n${link}\n${date.toLowerCase()}\n\n`;
  const signature = await crypto.subtle.sign('HMAC', await importKey(credential.key), new TextEncoder().encode(text));
  const base64 = btoa(String.fromCharCode(...new Uint8Array(signature)));
  return encodeURIComponent(`type=master&ver=1.0&sig=${base64}`);
}
