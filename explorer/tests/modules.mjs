// Modules of the page for tests in Node: types are taken off by the bundler that builds the page.
import { mkdtemp, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { rolldown } from 'rolldown';

const here = dirname(fileURLToPath(import.meta.url));

export async function load(path) {
  const folder = await mkdtemp(join(here, '.module-'));
  try {
    const bundle = await rolldown({ input: join(here, '../src', path) });
    await bundle.write({ file: join(folder, 'module.mjs'), format: 'esm' });
    return await import(pathToFileURL(join(folder, 'module.mjs')).href);
  } finally {
    await rm(folder, { recursive: true });
  }
}
