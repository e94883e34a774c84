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
      <Histograms run={run} layer={layer} step={step} range={range} />
    </section>
  );
}

function chosenTags(tags: string[], path: string, layer: string): string[] {
  const wanted = [path, ...BESIDE.filter((other) => other !== path)].map((one) => `${one}@${layer}`);
  return wanted.filter((tag) => tags.includes(tag)).slice(0, MOST);
}

function Histograms({ run, layer, step, range }: Omit<LayerDetailProps, "path">): JSX.Element | null {
  const all = useLoaded(`histogram tags ${run}`, () => histogramTags(run));
  const own = (all.value?.tags ?? []).filter((tag) => belongs(splitTag(tag).where, layer));
  const [asked, ask] = useState("");
  const tag = own.includes(asked) ? asked : (own[0] ?? "");
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

/** Histograms on their side: time to the right, values upwards, each time's shares on a scale of their own. */
function HistogramMap({ tag, matrix, step }: { tag: string; matrix: Matrix; step: number }): JSX.Element {
  const shares = useMemo(() => transposed(normalised(matrix), matrix.rows, matrix.columns), [matrix]);
  const names = useMemo(() => Array.from({ length: matrix.columns }, (_, i) => binName(matrix, i)), [matrix]);
  const column = nearestColumn(matrix.steps, step);
  return (
    <HeatMap
      title={`Histogram of ${tag}`}
      unit="share"
      values={shares}
      rows={matrix.columns}
      columns={matrix.rows}
      names={names}
      steps={matrix.steps}
      column={column}
      row={null}
      onPick={(at) => setQuery({ step: matrix.steps[at] })}
      room={300}
      upwards
    />
  );
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

function healthy(path: string): string {
  if (path.startsWith("grad"))
    return "Healthy: one hill about zero that slowly becomes narrower. Two hills with nothing between, all mass at zero, or a hill that runs outwards is trouble.";
  if (path.startsWith("weight"))
    return "Healthy: about the shape of the beginning, slowly wider. A jump to the side or outwards is a step that was too large.";
  return "Healthy: the width stays about the same over time. All mass at zero means dead units, all mass at the ends saturated ones.";
}
