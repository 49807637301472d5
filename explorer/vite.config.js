// Builds the page into `embed/`, compressed, where the gateway's build script finds it.
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { defineConfig } from 'vite';

const EMBED = 'embed';

/** Replaces every file but the page itself by its compressed form. */
function compress() {
  return {
    name: 'compress',
    apply: 'build',
    closeBundle() {
      const walk = (folder) => {
        for (const name of readdirSync(folder)) {
          const path = join(folder, name);
          if (statSync(path).isDirectory()) walk(path);
          else if (!name.startsWith('.') && name !== 'index.html') {
            writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
            rmSync(path);
          }
        }
      };
      walk(EMBED);
      writeFileSync(join(EMBED, '.gitignore'), '# The built page, written by `npm run build`; the gateway embeds what it finds here.\n*\n!.gitignore\n');
    },
  };
}

export default defineConfig({
  base: '/_explorer/',
  build: {
    outDir: EMBED,
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
    chunkSizeWarningLimit: 800,
  },
  plugins: [compress()],
  server: {
    // `ORRERY=http://localhost:8081 npm run dev` develops the page against a running server.
    proxy: Object.fromEntries(
      ['/dbs', '/offers', '/_orrery'].map((path) => [path, { target: process.env.ORRERY ?? 'http://localhost:8081', changeOrigin: true }]),
    ),
  },
});
