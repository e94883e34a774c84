/** Any series, in as many charts as wanted; the layout is the address. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { useLoaded } from "../api/loading";
import { tags as loadTags } from "../api/requests";
import { Chart } from "../charts/chart";
import { extent, type Line } from "../charts/lines";
import { readRange } from "../charts/ranges";
import { useSeries, type SeriesMap } from "../charts/series";
import { readSmoothing, showRange, Toolbar } from "../charts/toolbar";
import { Notice, Progress, Trouble } from "../parts/notices";
import { setQuery, toRuns } from "../routing/navigation";
import { meaning } from "../words/meanings";
import { count, whole as wholeNumber } from "../words/quantities";
import { COLOURS } from "./run_charts";
import { GoneNotice } from "./run";
import { useRun } from "./use_run";
import type { ViewProps } from "./view";

const LISTED = 300;
/** Lines of one chart: of more, nobody tells them apart. */
const MOST_LINES = 8;
const MOST_SERIES = 60;

export function Explore({ parts, query }: ViewProps): JSX.Element {
  const run = parts["run"] ?? query.get("run") ?? "";
  if (!run)
    return (
      <Notice title="Choose a run to explore.">
        <p>
          <a href={toRuns()}>All runs</a>
        </p>
      </Notice>
    );
  return <Exploration run={run} query={query} />;
}

function Exploration({ run, query }: { run: string; query: URLSearchParams }): JSX.Element {
  const watched = useRun(run);
  const charts = query.getAll("tag");
  const patterns = [...new Set(charts.flatMap((chart) => chart.split(",")))].filter(Boolean);
  const found = useLoaded(
    patterns.length ? `matching ${run} ${patterns.join(",")}` : "",
    () => matching(run, patterns),
    { keep: true },
  );
  const wanted = useMemo(
    () => [...new Set([...(found.value?.values() ?? [])].flat())].slice(0, MOST_SERIES),
    [found.value],
  );
  const range = readRange(query);
  const { series, refusal, slow } = useSeries(run, wanted, range, watched.newest?.step ?? -1);
  const smoothing = readSmoothing(query, 0);
  const whole = extent([...series].map(([tag, points]) => line(tag, points, 0, 0)));
  const show = (next: string[]): void => setQuery({ tag: next });
  return (
    <div class="explore-view">
      {watched.isGone && <GoneNotice />}
      <TagList
        run={run}
        shown={charts}
        onAdd={(tag) => show([...charts, tag])}
        onRemove={(tag) => show(charts.filter((other) => other !== tag))}
      />
      <div class="main-column">
        <Toolbar range={range} whole={whole} smoothing={smoothing} />
        {refusal && <Trouble refusal={refusal} />}
        {!charts.length && (
          <Notice title="No charts yet.">
            <p>
              Choose series at the left, or type a pattern such as <code>grad/rms@*.weight</code> and press Enter: a
              pattern is one chart. The address keeps the layout.
            </p>
          </Notice>
        )}
        {slow && <Progress slow of="series" />}
        <div class="charts">
          {charts.map((chart, i) => {
            const tags = chart.split(",").flatMap((pattern) => found.value?.get(pattern) ?? []);
            const lines = linesOf(tags, series, smoothing * (whole.to - whole.from));
            const { title, unit, explained } =
              tags.length === 1 ? meaning(tags[0]) : { ...meaning(chart.split("@")[0]), title: chart };
            return (
              <div class="with-remove" key={`${chart} ${i}`}>
                <Chart
                  group="explore"
                  legend={lines.length > 1 ? "below" : "beside"}
                  title={title}
                  unit={unit}
                  explained={explained}
                  lines={lines}
                  log="auto"
                  range={range}
                  whole={whole}
                  onRange={showRange}
                  empty={found.value ? `No series of this run is called ${chart}.` : ""}
                />
                <button
                  class="plain remove"
                  aria-label={`Remove ${title}`}
                  title="Remove this chart"
                  onClick={() => show(charts.filter((_, at) => at !== i))}
                >
                  ×
                </button>
                {tags.length > MOST_LINES && (
                  <p class="remark">
                    {MOST_LINES} of {count(tags.length, "series", "series")} are shown; make the pattern narrower for
                    others.
                  </p>
                )}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

async function matching(run: string, patterns: string[]): Promise<Map<string, string[]>> {
  const answers = await Promise.all(patterns.map((pattern) => loadTags(run, pattern, MOST_SERIES)));
  return new Map(patterns.map((pattern, i) => [pattern, answers[i].tags]));
}

const line = (tag: string, points: Line["points"], place: number, smoothing: number): Line => ({
  tag,
  label: tag,
  colour: COLOURS[place % COLOURS.length],
  points,
  smoothing,
  dots: points.x.length < 40,
});

function linesOf(tags: string[], series: SeriesMap, smoothing: number): Line[] {
  const there = tags.filter((tag) => series.get(tag)?.x.length).slice(0, MOST_LINES);
  return there.flatMap((tag, i) => [line(tag, series.get(tag)!, i, smoothing)]);
}

interface TagListProps {
  run: string;
  shown: string[];
  onAdd: (tag: string) => void;
  onRemove: (tag: string) => void;
}

function TagList({ run, shown, onAdd, onRemove }: TagListProps): JSX.Element {
  const [typed, setTyped] = useState("");
  const pattern = typed === "" ? "*" : typed.includes("*") || typed.includes("?") ? typed : `*${typed}*`;
  const { value, slow } = useLoaded(`tags ${run} ${pattern}`, () => loadTags(run, pattern, LISTED), { keep: true });
  const tags = value?.tags ?? [];
  return (
    <aside class="tag-list" aria-label="Series">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (typed) onAdd(tags.includes(typed) ? typed : pattern);
        }}
      >
        <input
          type="search"
          aria-label="Pattern of series"
          placeholder="grad/rms@*.weight"
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value.trim())}
        />
      </form>
      <p class="remark">
        {value
          ? `${wholeNumber(value.total)} series${tags.length > 1 && typed ? "; Enter: all in one chart" : ""}`
          : slow
            ? "Loading …"
            : ""}
      </p>
      <ul>
        {tags.map((tag) => {
          const isShown = shown.includes(tag);
          return (
            <li key={tag}>
              <button
                class={isShown ? "chosen" : ""}
                aria-pressed={isShown}
                title={meaning(tag).title}
                onClick={() => (isShown ? onRemove(tag) : onAdd(tag))}
              >
                {tag}
              </button>
            </li>
          );
        })}
      </ul>
      {value && value.total > tags.length && (
        <p class="remark">The first {wholeNumber(tags.length)}; type to find others.</p>
      )}
    </aside>
  );
}
