/** One layer: its series, and how its values are spread over time. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Matrix } from "../api/binary";
import { useLoaded } from "../api/loading";
import { histograms as load, histogramTags, tags as loadTags } from "../api/requests";
import { Chart } from "../charts/chart";
import { extent } from "../charts/lines";
import type { Range } from "../charts/ranges";
import { useSeries } from "../charts/series";
import { showRange } from "../charts/toolbar";
import { nearestColumn } from "../heatmaps/geometry";
import { HeatMap } from "../heatmaps/heat_map";
import { transposed } from "../heatmaps/shades";
import { Progress } from "../parts/notices";
import { setQuery } from "../routing/navigation";
import { meaning, splitTag } from "../words/meanings";
import { number } from "../words/quantities";

/** Series of a layer that stand beside the one of the map. */
const BESIDE = ["grad/rms", "update/ratio", "weight/rms", "act/rms", "act/dead", "act/zeros", "grad/zeros"];
const MOST = 6;

interface LayerDetailProps {
  run: string;
  path: string;
  layer: string;
  step: number;
  range: Range | null;
}

export function LayerDetail({ run, path, layer, step, range }: LayerDetailProps): JSX.Element {
  const there = useLoaded(`tags of ${run} ${layer}`, () => loadTags(run, `*@${layer}`), { keep: true });
  const shown = useMemo(() => chosenTags(there.value?.tags ?? [], path, layer), [there.value, path, layer]);
  const { series } = useSeries(run, shown, range, -1);
  const lines = shown.flatMap((tag) => {
    const points = series.get(tag);
    return points?.x.length ? [{ tag, label: splitTag(tag).path, colour: "main", points, smoothing: 0 }] : [];
  });
  const whole = extent(lines);
  const mark = { x: step, severity: "info" as const, label: `Step ${step}`, link: location.hash };
  return (
    <section class="layer-detail" aria-label={`Layer ${layer}`}>
      <h2>
        <code>{layer}</code>
      </h2>
      <div class="charts">
        {lines.map((line) => {
          const { title, unit, explained } = meaning(splitTag(line.tag).path);
          return (
            <Chart
              key={line.tag}
              group="layer"
              title={title}
              unit={unit}
              explained={explained}
              lines={[line]}
              log="auto"
              range={range}
              whole={whole}
              onRange={showRange}
              marks={[mark]}
            />
          );
        })}
      </div>
      <Histograms run={run} path={path} layer={layer} step={step} range={range} />
    </section>
  );
}

function chosenTags(tags: string[], path: string, layer: string): string[] {
  const wanted = [path, ...BESIDE.filter((other) => other !== path)].map((one) => `${one}@${layer}`);
  return wanted.filter((tag) => tags.includes(tag)).slice(0, MOST);
}

function Histograms({ run, path, layer, step, range }: LayerDetailProps): JSX.Element | null {
  const all = useLoaded(`histogram tags ${run}`, () => histogramTags(run));
  const own = (all.value?.tags ?? []).filter((tag) => belongs(splitTag(tag).where, layer));
  const [asked, ask] = useState("");
  const tag = own.includes(asked)
    ? asked
    : (own.find((one) => one.split("/")[0] === path.split("/")[0]) ?? own[0] ?? "");
  const loaded = useLoaded(
    tag ? `histogram ${run} ${tag} ${range?.from} ${range?.to}` : "",
    () => load(run, tag, range?.from, range?.to),
    { keep: true },
  );
  if (!own.length) return null;
  const matrix = loaded.value;
  return (
    <section class="histograms">
      <h3>How its values are spread</h3>
      <div class="controls">
        {own.map((one) => (
          <button key={one} class={one === tag ? "chosen" : ""} aria-pressed={one === tag} onClick={() => ask(one)}>
            {one}
          </button>
        ))}
      </div>
      {matrix && matrix.rows > 0 ? (
        <HistogramMap tag={tag} matrix={matrix} step={step} />
      ) : (
        <Progress slow={loaded.slow} of="histograms" />
      )}
      <p class="remark">{healthy(splitTag(tag).path)}</p>
    </section>
  );
}

/** Histograms on their side: time to the right, values upwards, each time's shares of its own total. */
function HistogramMap({ tag, matrix, step }: { tag: string; matrix: Matrix; step: number }): JSX.Element {
  const { shares, bins } = useMemo(() => occupied(matrix), [matrix]);
  const names = useMemo(() => bins.map((bin) => binName(matrix, bin)), [bins]);
  return (
    <HeatMap
      title={`Histogram of ${tag}`}
      unit="share"
      values={shares}
      rows={bins.length}
      columns={matrix.rows}
      names={names}
      steps={matrix.steps}
      column={nearestColumn(matrix.steps, step)}
      row={null}
      onPick={(at) => setQuery({ step: matrix.steps[at] })}
      room={300}
      upwards
    />
  );
}

/** The bins that hold something at any time, a row each. */
function occupied(matrix: Matrix): { shares: Float32Array; bins: number[] } {
  const turned = transposed(normalised(matrix), matrix.rows, matrix.columns);
  const rows = Array.from({ length: matrix.columns }, (_, bin) =>
    turned.subarray(bin * matrix.rows, (bin + 1) * matrix.rows),
  );
  const bins = [...rows.keys()].filter((bin) => rows[bin].some((share) => share > 0));
  const shares = new Float32Array(bins.length * matrix.rows);
  bins.forEach((bin, row) => shares.set(rows[bin], row * matrix.rows));
  return { shares, bins };
}

function normalised({ values, rows, columns }: Matrix): Float32Array {
  const shares = new Float32Array(values.length);
  for (let row = 0; row < rows; row++) {
    const own = values.subarray(row * columns, (row + 1) * columns);
    const total = own.reduce((sum, value) => sum + value, 0);
    own.forEach((value, i) => (shares[row * columns + i] = total && value ? value / total : NaN));
  }
  return shares;
}

function binName({ edges, columns }: Matrix, bin: number): string {
  if (edges.length !== columns + 1) return `bin ${bin + 1}`;
  const [low, high] = [edges[bin], edges[bin + 1]];
  return number(
    Number.isFinite(low) && Number.isFinite(high) ? (low + high) / 2 : Number.isFinite(low) ? low : high,
    2,
  );
}

/** A histogram belongs to a layer where it is the layer's own, or of a parameter of the module. */
function belongs(where: string, layer: string): boolean {
  return where === layer || layer === where.replace(/\.[^.]+$/, "") || where === layer.replace(/\.(weight|bias)$/, "");
}

/** What shapes are healthy, as they look on this scale. */
function healthy(path: string): string {
  const scale = "Values are on a logarithmic scale to both sides of zero; those that never occur are left out.";
  if (path.startsWith("grad"))
    return `${scale} Healthy: two hills alike, of negative and of positive values, that slowly move towards zero. All mass at zero means no gradient, hills that run outwards an explosion.`;
  if (path.startsWith("weight"))
    return `${scale} Healthy: two hills alike that hardly move. A jump is a step that was too large.`;
  return `${scale} Healthy: hills that stay about where they are. All mass at zero means dead units, all mass at the outermost values saturated ones.`;
}
