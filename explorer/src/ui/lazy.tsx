// Lazily loaded components.
import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Notice, Spinner } from './parts';

export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const [part, setPart] = useState<{ of: ComponentType<P> | null; error: string | null }>({ of: loaded, error: null });
    useEffect(() => {
      if (part.of) return;
      load().then(
        (of) => {
          loaded = of;
          setPart({ of, error: null });
        },
        () => setPart({ of: null, error: 'A part of the page could not be loaded. Reload it: the server may have been updated.' }),
      );
    }, []);
    const Part = part.of;
    if (part.error) return <Notice kind="error">{part.error}</Notice>;
    return Part ? <Part {...props} /> : <div class="loading-part"><Spinner /></div>;
  };
}
