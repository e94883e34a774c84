/** Runs on top of each other: their curves, what was set differently, and where they part. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { useLoaded } from "../api/loading";
import { comparison, run as loadRun, series as loadSeries } from "../api/requests";
import type { Run } from "../api/types";
import { Chart } from "../charts/chart";
import { extent, type Line } from "../charts/lines";
import { moved, lastFinite, type Points } from "../charts/points";
import { readRange } from "../charts/ranges";
import { readSmoothing, showRange, Toolbar } from "../charts/toolbar";
import { shortNumber, stepLabel } from "../charts/axes";
import { VerdictMark } from "../findings/severity";
import { Notice, Progress, Trouble } from "../parts/notices";
import { setQuery, toRun, toRuns } from "../routing/navigation";
import { seconds } from "../words/quantities";
import { meaning } from "../words/meanings";
import { Differences } from "./differences";
import { COLOURS, SPARSE } from "./run_charts";
import type { ViewProps } from "./view";

const MOST_RUNS = 8;
const TAGS = ["loss", "val/loss", "grad/norm", "update/ratio", "lr", "throughput/samples_per_s"];
const SAMPLES = "batch/samples";
const SMOOTHING = 0.005;

type Axis = "step" | "time" | "samples";

interface ComparedRun {
  run: Run;
  series: Map<string, Points>;
}

export function Compare({ query }: ViewProps): JSX.Element {
  const ids = [...new Set(query.getAll("run"))].slice(0, MOST_RUNS);
  const axis = (["time", "samples"].find((one) => one === query.get("by")) ?? "step") as Axis;
  const loaded = useLoaded(
    ids.length ? `compare ${ids.join("\n")} ${axis}` : "",
    () => Promise.all(ids.map((id) => loadOne(id, axis))),
    { keep: true },
  );
  const words = useLoaded(ids.length > 1 ? `differences ${ids.join("\n")}` : "", () => comparison(ids));
  if (ids.length < 2)
    return (
      <Notice title="Choose runs to compare.">
        <p>
          Select two or more in <a href={toRuns()}>the table of runs</a> (<kbd>x</kbd>), then compare them (<kbd>c</kbd>
          ).
        </p>
      </Notice>
    );
  if (!loaded.value)
    return loaded.refusal ? (
      <Trouble refusal={loaded.refusal} retry={loaded.reload} />
    ) : (
      <Progress slow={loaded.slow} of="runs" />
    );
  return (
    <div class="compare-view">
      <Members members={loaded.value} ids={ids} />
      <Curves members={loaded.value} axis={axis} query={query} />
      {words.value && <Differences comparison={words.value} names={loaded.value.map(({ run }) => run.name)} />}
      {words.refusal && <Trouble refusal={words.refusal} />}
      {!words.value && !words.refusal && <Progress slow={words.slow} of="what they differ in" />}
    </div>
  );
}

async function loadOne(id: string, axis: Axis): Promise<ComparedRun> {
  const [run, columns] = await Promise.all([
    loadRun(id),
    loadSeries(id, { tags: [...TAGS, SAMPLES], by: axis === "time" ? "time" : "step" }),
  ]);
  const series = new Map<string, Points>(columns.map((column) => [column.tag, column]));
  return { run, series: new Map([...series].map(([tag, points]) => [tag, moved(points, placement(axis, series))])) };
}

/** From what the server counts by to what the axis shows: seconds since the first step, or samples so far. */
function placement(axis: Axis, series: Map<string, Points>): (x: number) => number {
  if (axis === "time") {
    const start = Math.min(...[...series.values()].flatMap((points) => (points.x.length ? [points.x[0]] : [])));
    return (x) => x - start;
  }
  const samples = series.get(SAMPLES)?.mean;
  const each = samples && lastFinite(samples) !== null ? mean(samples) : 1;
  return axis === "samples" ? (x) => x * each : (x) => x;
}

function mean(values: ArrayLike<number>): number {
  const finite = Array.from(values).filter(Number.isFinite);
  return finite.reduce((sum, value) => sum + value, 0) / finite.length;
}

function Members({ members, ids }: { members: ComparedRun[]; ids: string[] }): JSX.Element {
  return (
    <ul class="members">
      {members.map(({ run }, i) => (
        <li key={run.id}>
          <i class={`swatch ${COLOURS[i]}`} />
          <a href={toRun(run.id)}>{run.name}</a>
          <VerdictMark verdict={run.verdict} />
          {ids.length > 2 && (
            <button
              class="plain"
              aria-label={`Leave out ${run.name}`}
              title="Leave out"
              onClick={() => setQuery({ run: ids.filter((id) => id !== run.id) })}
            >
              ×
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}

function Curves({ members, axis, query }: { members: ComparedRun[]; axis: Axis; query: URLSearchParams }): JSX.Element {
  const range = readRange(query);
  const smoothing = readSmoothing(query, SMOOTHING);
  const raw = useMemo(() => TAGS.map((tag) => ({ tag, lines: linesOf(members, tag) })), [members]);
  const whole = extent(raw.flatMap(({ lines }) => lines));
  const xLabel = axis === "time" ? seconds : axis === "samples" ? shortNumber : stepLabel;
  const halfLife = smoothing * (whole.to - whole.from);
  return (
    <>
      <Toolbar range={range} whole={whole} smoothing={smoothing} xLabel={xLabel}>
        <label class="choice">
          By
          <select value={axis} onChange={(event) => setQuery({ by: event.currentTarget.value, from: null, to: null })}>
            <option>step</option>
            <option>time</option>
            <option>samples</option>
          </select>
        </label>
      </Toolbar>
      <div class="charts">
        {raw
          .filter(({ lines }) => lines.length)
          .map(({ tag, lines }) => {
            const { title, unit, explained } = meaning(tag);
            const drawn = lines.map((line) => ({ ...line, smoothing: line.dots ? 0 : halfLife }));
            return (
              <Chart
                key={tag}
                group="compare"
                legend="unnamed"
                title={title}
                unit={unit}
                explained={explained}
                lines={drawn}
                log="auto"
                range={range}
                whole={whole}
                xLabel={xLabel}
                xName={axis}
                onRange={showRange}
              />
            );
          })}
      </div>
    </>
  );
}

function linesOf(members: ComparedRun[], tag: string): Line[] {
  return members.flatMap(({ run, series }, i) => {
    const points = series.get(tag);
    return points?.x.length
      ? [
          {
            tag,
            label: run.name,
            colour: COLOURS[i],
            points,
            smoothing: 0,
            dots: points.x.length < (tag === "val/loss" ? 100 : SPARSE),
          },
        ]
      : [];
  });
}
