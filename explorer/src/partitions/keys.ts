// Partition keys as filters.
import { pathSegments } from '../api/calls';

/** A filter for the items of a key, which is JSON: `["a",1]`. */
export function filterForKey(paths: string[], key: string): string {
  let parts: unknown[];
  try {
    const parsed: unknown = JSON.parse(key);
    parts = Array.isArray(parsed) ? parsed : [parsed];
  } catch {
    return '';
  }
  return parts
    .map((part, at) => {
      const property = `c${pathSegments(paths[at] ?? '/id')
        .map((name) => `["${name.replaceAll('"', '\\"')}"]`)
        .join('')}`;
      return typeof part === 'object' && part !== null ? `NOT IS_DEFINED(${property})` : `${property} = ${JSON.stringify(part)}`;
    })
    .join(' AND ');
}
