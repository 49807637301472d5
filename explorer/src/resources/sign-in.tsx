// Asks for an account key or a resource token if the well-known key is not accepted.
import { useState } from 'preact/hooks';
import { isKey } from '../api/sign';
import { signIn } from '../state/session';
import { Logo } from '../ui/icons';
import { Button, Field, Notice } from '../ui/parts';

export function SignIn({ reason }: { reason: string | null }) {
  const [secret, setSecret] = useState('');
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  if (reason === 'insecure') {
    const secure = `https://${location.host}/_explorer/`;
    return (
      <main class="sign-in">
        <div class="card">
          <Logo size={44} />
          <h1>Orrery</h1>
          <Notice kind="warning">
            Browsers can sign requests only on pages served over HTTPS. Open <a href={secure}>{secure}</a> instead; the same port serves both.
          </Notice>
        </div>
      </main>
    );
  }
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    const text = secret.trim();
    setError(await signIn(!text.startsWith('type=') && isKey(text) ? { kind: 'key', key: text } : { kind: 'token', token: text }));
    setBusy(false);
  };
  return (
    <main class="sign-in">
      <form class="card stack" onSubmit={submit}>
        <Logo size={44} />
        <h1>Sign in to Orrery</h1>
        <p class="muted">{location.host}</p>
        <Field label="Account key or resource token" error={error} hint="It stays in this tab. The page signs its requests with it and never sends the key itself.">
          {(id, hint) => (
            <input id={id} aria-describedby={hint} type="password" autocomplete="off" spellcheck={false} value={secret} required autofocus onInput={(event) => setSecret(event.currentTarget.value)} />
          )}
        </Field>
        <Button kind="primary" type="submit" disabled={busy || secret.trim() === ''}>
          Sign in
        </Button>
        <p class="hint">
          The key is in the file that the server printed at start-up; <code>--key</code> sets one.
        </p>
      </form>
    </main>
  );
}
