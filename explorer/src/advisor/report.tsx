// The advisor's report: a verdict, the keys side by side, the reasons, and what a number of suffixes would cost.
import { useState } from 'preact/hooks';
import type { Advice, Candidate, SuffixPlan } from '../api/shapes';
import * as format from '../ui/format';
import { Button, Field, Notice, Table } from '../ui/parts';

/** Keys that get a card of their own. */
const CARDS = 12;

export function Report({ report, current, onTake }: { report: Advice; current: string | null; onTake: ((candidate: Candidate) => void) | null }) {
  const [open, setOpen] = useState<string | null>(null);
  return (
    <section class="stack" aria-label="Report">
      <h2>
        {format.plural(report.candidates.length, 'key')} over {format.plural(report.partitions, 'partition')}, {format.count(report.data.items)} items{report.data.itemsTotal > report.data.items && ` as a sample of ${format.count(report.data.itemsTotal)}`},{' '}
        {report.workload.given ? 'with the recorded workload' : 'with an assumed workload'}
      </h2>
      {report.recommended !== null ? (
        <Notice kind="good">
          Recommended: <code>{report.recommended}</code>
        </Notice>
      ) : (
        report.missing.length > 0 && (
          <Notice>
            No recommendation yet.
            <ul class="bullets">
              {report.missing.map((one) => (
                <li key={one}>{one}</li>
              ))}
            </ul>
          </Notice>
        )
      )}
      <Comparison candidates={report.candidates} current={current} />
      {report.suffixPlans.map((plan) => (
        <Suffixes key={`${plan.base} ${plan.by ?? ''}`} plan={plan} />
      ))}
      {report.candidates.slice(0, CARDS).map((candidate) => (
        <CandidateCard
          key={candidate.name}
          candidate={candidate}
          current={candidate.name === current}
          open={open === candidate.name}
          onToggle={() => setOpen(open === candidate.name ? null : candidate.name)}
          onTake={onTake && (() => onTake(candidate))}
        />
      ))}
      {report.notes.map((note) => (
        <p key={note} class="muted">
          {note}
        </p>
      ))}
    </section>
  );
}

/** All keys with the figures that decide between them. */
function Comparison({ candidates, current }: { candidates: Candidate[]; current: string | null }) {
  return (
    <div class="card">
      <Table label="Keys compared" columns={['Key', { numeric: 'Values' }, { numeric: 'Largest key' }, { numeric: 'Busiest partition' }, { numeric: 'Throttled' }, { numeric: 'Queries that fan out' }, { numeric: 'Needs' }, { numeric: 'In a year' }]}>
        {candidates.map((one) => (
          <tr key={one.name}>
            <td>
              <code>{one.name}</code> {one.name === current && <span class="badge">in use</span>}
            </td>
            <td class="numeric">{format.count(one.distinctValues)}</td>
            <td class="numeric">{format.percent(one.largestKey.share)}</td>
            <td class="numeric">{one.hotFactor.toFixed(1)} × average</td>
            <td class="numeric">{format.percent(one.throttled.share)}</td>
            <td class="numeric">{format.percent(one.reads.fanOutShare)}</td>
            <td class="numeric">{format.count(one.neededThroughput.now)} RU/s</td>
            <td class="numeric">{format.count(one.neededThroughput.inAYear)} RU/s</td>
          </tr>
        ))}
      </Table>
    </div>
  );
}

/** What if a key got a suffix, and there were this many? The report has the whole curve, so nothing is asked again. */
function Suffixes({ plan }: { plan: SuffixPlan }) {
  const best = Math.max(0, plan.curve.findIndex((point) => point.suffixes === plan.best));
  const [at, setAt] = useState(best);
  const point = plan.curve[Math.min(at, plan.curve.length - 1)];
  if (!point) return null;
  return (
    <div class="card stack">
      <h3>
        A suffix for <code>{plan.base}</code>
        {plan.by && (
          <>
            {' '}
            from <code>{plan.by}</code>
          </>
        )}
      </h3>
      <Field label={`What if there were ${format.plural(point.suffixes, 'suffix', 'suffixes')}?`} hint={`${format.count(plan.best)} needs the least throughput.`}>
        {(id, hint) => <input id={id} aria-describedby={hint} type="range" min={0} max={plan.curve.length - 1} value={at} onInput={(event) => setAt(Number(event.currentTarget.value))} />}
      </Field>
      <div role="status">
        <ul class="facts">
          <li>needs {format.count(point.neededThroughput)} RU/s</li>
          <li>busiest partition {point.hotFactor.toFixed(1)} × the average</li>
          <li>reads of all suffixes visit {format.short(point.partitionsVisited)} partitions</li>
        </ul>
      </div>
    </div>
  );
}

function CandidateCard({ candidate, current, open, onToggle, onTake }: { candidate: Candidate; current: boolean; open: boolean; onToggle: () => void; onTake: (() => void) | null }) {
  const load = candidate.requestUnitsPerSecondByPartition;
  const most = Math.max(1e-9, ...load);
  return (
    <article class="card candidate">
      <div class="section-head">
        <h3>
          <span class="rank">{candidate.rank}</span> <code>{candidate.name}</code> {current && <span class="badge">in use</span>}
        </h3>
        <div class="row">
          <Button kind="quiet" class="small" aria-expanded={open} onClick={onToggle}>
            {open ? 'Less' : 'More'}
          </Button>
          {onTake && !current && (
            <Button class="small" onClick={onTake}>
              Use this key…
            </Button>
          )}
        </div>
      </div>
      <div class="bars" role="img" aria-label={`Load by partition: the busiest has ${format.short(candidate.hotFactor)} times the average`}>
        {load.slice(0, 200).map((units, at) => (
          <span key={at} style={{ height: `${Math.max(2, (units / most) * 100)}%` }} />
        ))}
      </div>
      <ul class="facts">
        <li>{format.plural(candidate.distinctValues, 'value')}</li>
        <li>busiest partition {candidate.hotFactor.toFixed(1)} × the average</li>
        <li class={candidate.throttled.share > 0.01 ? 'bad-text' : ''}>{format.percent(candidate.throttled.share)} throttled</li>
        <li>needs {format.count(candidate.neededThroughput.now)} RU/s</li>
      </ul>
      {open && (
        <div class="reasons">
          <div>
            <h4>For</h4>
            <ul class="bullets">{candidate.for.map((reason) => <li key={reason}>{reason}</li>)}</ul>
          </div>
          <div>
            <h4>Against</h4>
            <ul class="bullets">{candidate.against.map((reason) => <li key={reason}>{reason}</li>)}</ul>
          </div>
          <dl class="pairs">
            <dt>Largest key</dt>
            <dd>
              {format.percent(candidate.largestKey.share)} of the data, {format.bytes(candidate.largestKey.bytes)}
              {candidate.largestKey.daysUntilFull !== null && `, full in ${format.count(candidate.largestKey.daysUntilFull)} days`}
            </dd>
            <dt>Reads</dt>
            <dd>
              {format.percent(candidate.reads.pointShare)} by id, {format.percent(candidate.reads.singlePartitionShare)} in one partition, {format.percent(candidate.reads.fanOutShare)} everywhere
            </dd>
            <dt>In a year</dt>
            <dd>{format.count(candidate.neededThroughput.inAYear)} RU/s</dd>
          </dl>
        </div>
      )}
    </article>
  );
}
