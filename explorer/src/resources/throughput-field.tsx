// The throughput of a database or container: none, manual, or autoscale.
import type { Offer } from '../api/calls';
import * as format from '../ui/format';
import { Field } from '../ui/parts';

export interface Throughput {
  mode: 'none' | 'manual' | 'autoscale';
  units: number;
}

export const throughputOf = ({ content }: Offer): Throughput =>
  content.offerAutopilotSettings ? { mode: 'autoscale', units: content.offerAutopilotSettings.maxThroughput } : { mode: 'manual', units: content.offerThroughput };

/** `400 RU/s`, or `up to 4,000 RU/s`. */
export function throughputText(offer: Offer): string {
  const { mode, units } = throughputOf(offer);
  return `${mode === 'autoscale' ? 'up to ' : ''}${format.count(units)} RU/s`;
}

export function throughputHeaders(throughput: Throughput): Record<string, string> {
  if (throughput.mode === 'manual') return { 'x-ms-offer-throughput': String(throughput.units) };
  if (throughput.mode === 'autoscale') return { 'x-ms-cosmos-offer-autopilot-settings': JSON.stringify({ maxThroughput: throughput.units }) };
  return {};
}

export function ThroughputField({ value, onChange, none }: { value: Throughput; onChange: (value: Throughput) => void; none?: string }) {
  const modes: [Throughput['mode'], string][] = [...(none ? [['none', none] as [Throughput['mode'], string]] : []), ['manual', 'Manual'], ['autoscale', 'Autoscale']];
  const least = value.mode === 'autoscale' ? 1000 : 400;
  const step = value.mode === 'autoscale' ? 1000 : 100;
  return (
    <fieldset class="field">
      <legend>Throughput</legend>
      <div class="segments">
        {modes.map(([mode, title]) => (
          <label key={mode}>
            <input type="radio" name="throughput" checked={value.mode === mode} onChange={() => onChange({ mode, units: mode === 'autoscale' ? Math.max(1000, Math.round(value.units / 1000) * 1000) : value.units })} />
            <span>{title}</span>
          </label>
        ))}
      </div>
      {value.mode !== 'none' && (
        <Field
          label={value.mode === 'autoscale' ? 'Most request units per second' : 'Request units per second'}
          hint={value.mode === 'autoscale' ? `Scales between ${value.units / 10} and ${value.units} RU/s.` : 'A point read of 1 KB costs one unit, a write about five.'}
        >
          {(id, hint) => (
            <input id={id} aria-describedby={hint} type="number" min={least} step={step} value={value.units} onInput={(event) => onChange({ ...value, units: Number(event.currentTarget.value) })} />
          )}
        </Field>
      )}
    </fieldset>
  );
}
