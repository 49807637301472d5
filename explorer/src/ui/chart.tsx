// A chart by uPlot: lines over time, or bars over categories. Loaded when the first one is shown.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { isDark } from '../state/theme';

export interface Series {
  title: string;
  values: (number | null)[];
  /** The name of a colour of the sheet. */
  colour: string;
  fill?: boolean;
  bars?: boolean;
  dash?: number[];
}

export interface ChartProps {
  label: string;
  /** Seconds since 1970, or places of categories. */
  x: number[];
  kind: 'time' | 'category' | 'number';
  categories?: string[];
  series: Series[];
  height?: number;
  /** A unit for the axis. */
  unit?: string;
  floor?: number;
}

const PALETTE = ['--accent', '--hot', '--good', '--code-keyword', '--brass', '--code-constant', '--code-property', '--warn'];
export const colourAt = (at: number): string => PALETTE[at % PALETTE.length]!;

const colour = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const brief = (value: number): string => {
  if (Math.abs(value) >= 1e9) return `${+(value / 1e9).toPrecision(3)}G`;
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (Math.abs(value) >= 1e4) return `${+(value / 1e3).toPrecision(3)}K`;
  return String(+value.toPrecision(4));
};

export function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = isDark.value;
  const shape = `${props.kind} ${props.series.map((one) => `${one.title}${one.colour}${one.bars}`).join()} ${props.categories?.join() ?? ''} ${props.height ?? ''} ${dark}`;
  useEffect(() => {
    const shown = box.current!;
    const text = colour('--muted');
    const lines = { stroke: colour('--border'), width: 1 };
    const axis = { stroke: text, grid: lines, ticks: lines, font: '12px system-ui, sans-serif' };
    const categories = props.categories;
    const options: uPlot.Options = {
      width: shown.clientWidth || 600,
      height: props.height ?? 280,
      cursor: { drag: { x: props.kind !== 'category', y: false } },
      legend: { show: props.series.length > 1 || props.kind !== 'category' },
      scales: { x: { time: props.kind === 'time', ...(props.kind === 'category' ? { range: [-0.6, props.x.length - 0.4] as [number, number] } : {}) }, y: { range: (_plot, low, high) => [Math.min(0, low ?? 0), Math.max(props.floor ?? 0, high ?? 1) * 1.06 || 1] } },
      series: [
        categories ? { value: (_plot, at) => (at === null ? '—' : (categories[at] ?? '')) } : {},
        ...props.series.map((one) => ({
          label: one.title,
          stroke: colour(one.colour),
          fill: one.bars ? colour(one.colour) : one.fill ? `${colour(one.colour)}33` : undefined,
          width: 1.6,
          dash: one.dash,
          points: { show: false },
          paths: one.bars ? uPlot.paths.bars!({ size: [0.72, 70], radius: 0.12 }) : uPlot.paths.linear!(),
        })),
      ],
      axes: [
        {
          ...axis,
          ...(categories
            ? {
                splits: () => props.x,
                values: (_plot, splits) => {
                  const every = Math.ceil((splits.length * 70) / Math.max(300, shown.clientWidth - 60));
                  return splits.map((at, index) => (index % every === 0 ? shorten(categories[at] ?? '') : ''));
                },
                grid: { show: false },
              }
            : {}),
        },
        { ...axis, size: 58, values: (_plot, splits) => splits.map((value) => `${brief(value)}${props.unit ?? ''}`) },
      ],
    };
    const made = new uPlot(options, [props.x, ...props.series.map((one) => one.values)] as uPlot.AlignedData, shown);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: shown.clientWidth, height: props.height ?? 280 }));
    watch.observe(shown);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setData([props.x, ...props.series.map((one) => one.values)] as uPlot.AlignedData);
  }, [props.x, props.series]);
  return <div ref={box} class="chart" role="img" aria-label={props.label} />;
}

const shorten = (text: string): string => (text.length > 14 ? `${text.slice(0, 13)}…` : text);
