// The function that sends every request: it signs, sends, waits when throttled, and turns failures into errors.
import { type Credential, authorization } from './sign';

export interface Answer<T> {
  status: number;
  headers: Headers;
  body: T;
  /** Request units. */
  charge: number;
  ms: number;
  /** How often the request was throttled. */
  throttled: number;
}

/** An error in a query text, by offsets. */
export interface QueryFault {
  message: string;
  code?: string;
  start?: number;
  end?: number;
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly substatus: number,
    readonly code: string,
    message: string,
    readonly charge: number,
    readonly activityId: string,
    readonly faults: QueryFault[],
  ) {
    super(message);
  }
}

export interface CallOptions {
  headers?: Record<string, string>;
  body?: unknown;
  signal?: AbortSignal;
  /** How often a throttled request is repeated. */
  retries?: number;
  /** Return the text without parsing it. */
  asText?: boolean;
}

let credential: Credential | null = null;

export function setCredential(value: Credential | null): void {
  credential = value;
}

export const currentCredential = (): Credential | null => credential;

export async function call<T>(method: string, path: string, options: CallOptions = {}): Promise<Answer<T>> {
  const retries = options.retries ?? 9;
  for (let throttled = 0; ; throttled++) {
    const answer = await once<T>(method, path, options, throttled);
    if (answer instanceof Throttled && throttled < retries) {
      await sleep(answer.retryAfterMs, options.signal);
      continue;
    }
    if (answer instanceof Throttled) throw answer.error;
    return answer;
  }
}

class Throttled {
  constructor(readonly retryAfterMs: number, readonly error: ApiError) {}
}

async function once<T>(method: string, path: string, options: CallOptions, throttled: number): Promise<Answer<T> | Throttled> {
  const date = new Date().toUTCString();
  const headers: Record<string, string> = { accept: 'application/json', 'x-ms-version': '2020-07-15', 'x-ms-date': date, ...options.headers };
  if (credential) headers.authorization = await authorization(credential, method, path, date);
  let body: string | undefined;
  if (options.body !== undefined) {
    body = typeof options.body === 'string' ? options.body : JSON.stringify(options.body);
    headers['content-type'] ??= 'application/json';
  }
  const started = performance.now();
  let response: Response;
  try {
    response = await fetch(path, { method, headers, body, signal: options.signal, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, 0, 'Unreachable', 'The server is not responding. Is it still running?', 0, '', []);
  }
  const text = await response.text();
  const ms = performance.now() - started;
  const number = (name: string) => Number(response.headers.get(name) ?? 0);
  const charge = number('x-ms-request-charge');
  if (response.ok || response.status === 304) {
    const parsed = options.asText ? text : text === '' ? null : JSON.parse(text);
    return { status: response.status, headers: response.headers, body: parsed as T, charge, ms, throttled };
  }
  const error = describe(response.status, number('x-ms-substatus'), text, charge, response.headers.get('x-ms-activity-id') ?? '');
  if (response.status === 429) return new Throttled(number('x-ms-retry-after-ms') || 100, error);
  throw error;
}

/** The service wraps its messages twice: `Message: {"Errors":["…"]}` and lines about the request. */
export function describe(status: number, substatus: number, text: string, charge: number, activityId: string): ApiError {
  let code = String(status);
  let message = text || `The server answered ${status}.`;
  let faults: QueryFault[] = [];
  try {
    const body = JSON.parse(text) as { code?: string; message?: string };
    code = body.code ?? code;
    message = body.message ?? message;
  } catch {
    // Plain text then.
  }
  message = message.replace(/\r?\nActivityId:[\s\S]*$/, '').replace(/^Message: /, '');
  try {
    const inner = JSON.parse(message) as { Errors?: string[]; errors?: { message: string; code?: string; location?: { start: number; end: number } }[] };
    if (inner.errors) {
      faults = inner.errors.map((fault) => ({ message: fault.message, code: fault.code, start: fault.location?.start, end: fault.location?.end }));
      message = faults.map((fault) => fault.message).join('\n');
    } else if (inner.Errors) message = inner.Errors.join('\n');
  } catch {
    // No list of errors.
  }
  return new ApiError(status, substatus, code, message, charge, activityId, faults);
}

export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener('abort', () => {
      clearTimeout(timer);
      reject(signal.reason);
    }, { once: true });
  });
}

/** A path from raw names. */
export const path = (...segments: string[]): string => `/${segments.map(encodeURIComponent).join('/')}`;

export const get = <T>(at: string, options?: CallOptions) => call<T>('GET', at, options);
export const post = <T>(at: string, body: unknown, options?: CallOptions) => call<T>('POST', at, { ...options, body });
