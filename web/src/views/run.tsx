/** One run: what is wrong with it, then its curves. */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useLoaded } from "../api/loading";
import { tags as loadTags } from "../api/requests";
import type { Run } from "../api/types";
import { Chart } from "../charts/chart";
import { extent } from "../charts/lines";
import { readRange, type Range } from "../charts/ranges";
import { useSeries } from "../charts/series";
import { readSmoothing, showRange, Toolbar } from "../charts/toolbar";
import { DiagnosisPanel } from "../findings/diagnosis_panel";
import { marksOf, tell } from "../findings/groups";
import { useKeys } from "../keyboard/keys";
import { Progress, Trouble } from "../parts/notices";
import { go, setQuery, toFinding, toRuns } from "../routing/navigation";
import { byEvidence, CHARTS, evaluationCharts, linesOf, LOSS } from "./run_charts";
import { RunFacts } from "./run_facts";
import { Settings } from "./run_settings";
import { useRun, type WatchedRun } from "./use_run";
import type { ViewProps } from "./view";

const GROUP = "run";
const SMOOTHING = 0.005;

export function RunPage({ parts, query }: ViewProps): JSX.Element {
  const watched = useRun(parts["run"]);
  const run = watched.value;
  if (!run)
    return watched.refusal ? (
      <Trouble refusal={watched.refusal} retry={watched.reload} />
    ) : (
      <Progress slow={watched.slow} of="the run" />
    );
  return <Overview run={run} watched={watched} query={query} />;
}

export function GoneNotice(): JSX.Element {
  return (
    <div class="gone" role="alert">
      This run was deleted. What was loaded of it stays on this page until you leave it. <a href={toRuns()}>All runs</a>
    </div>
  );
}

function Overview({ run, watched, query }: { run: Run; watched: WatchedRun; query: URLSearchParams }): JSX.Element {
  const [isHeld, setHeld] = useState(query.get("hold") === "1");
  const [chosen, choose] = useState("");
  const evaluated = useLoaded(`val ${run.id} ${run.evaluations.length > 0}`, () => loadTags(run.id, "val/*", 12));
  const plans = useMemo(() => [LOSS, ...CHARTS, ...evaluationCharts(evaluated.value?.tags ?? [])], [evaluated.value]);
  const wanted = useMemo(() => plans.flatMap((plan) => plan.tags), [plans]);
  const isLive = run.state === "running" && !watched.isGone;
  const wasLive = useRef(isLive);
  wasLive.current ||= isLive; // the last steps of a run come as it ends
  const newest = isHeld || !wasLive.current ? -1 : Math.max(run.steps, watched.newest?.step ?? -1);
  const range = readRange(query);
  const { series, refusal, slow, ready } = useSeries(run.id, wanted, range, newest);
  const smoothing = readSmoothing(query, SMOOTHING);

  const whole = wholeRun(extent(plans.flatMap((plan) => linesOf(plan, series, 0))), isHeld ? 0 : run.steps);
  const halfLife = smoothing * (whole.to - whole.from);
  const alarms = useMemo(() => marksOf(run.id, run.findings, ["warning", "critical"]), [run]);
  const all = useMemo(() => marksOf(run.id, run.findings, ["info", "warning", "critical"]), [run]);
  useSliding(range, whole, isLive && !isHeld);

  const told = useMemo(() => tell(run), [run]);
  const ids = [...told.causes.flatMap((cause) => cause.symptoms), ...told.notes, ...told.muted].map(
    (finding) => finding.id,
  );
  const move = (by: number): void => {
    const next = ids[Math.min(Math.max(ids.indexOf(chosen) + by, 0), ids.length - 1)];
    if (next) choose(next);
  };
  const hold = (): void => {
    setHeld(!isHeld);
    setQuery({ hold: isHeld ? null : 1 });
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: () => chosen && go(toFinding(run.id, chosen)),
    l: () => isLive && hold(),
  });

  const shared = { group: GROUP, range, whole, onRange: showRange };
  const lossLines = linesOf(LOSS, series, halfLife);
  return (
    <div class="run-view">
      {watched.isGone && <GoneNotice />}
      <RunFacts run={run} newest={isHeld ? null : watched.newest} onChange={watched.reload} />
      <div class="first-screen">
        <div class="aside">
          <DiagnosisPanel run={run} chosen={chosen} />
          <Settings run={run} />
        </div>
        <div class="lead">
          <Toolbar range={range} whole={whole} smoothing={smoothing}>
            {isLive && (
              <button
                class={`follow ${isHeld ? "held" : ""}`}
                aria-pressed={!isHeld}
                title="Follow the run as it goes on, or hold still (l)"
                onClick={hold}
              >
                {isHeld ? "Held still" : "Following"}
              </button>
            )}
          </Toolbar>
          {refusal ? (
            <Trouble refusal={refusal} />
          ) : !ready ? (
            <Progress slow={slow} of="curves" />
          ) : (
            <Chart
              {...shared}
              tall
              title="Loss"
              lines={lossLines}
              log="auto"
              marks={all}
              phases={run.schedule}
              evaluations={run.evaluations}
              empty="No loss was recorded: give it to `watch.step(loss)`."
            />
          )}
          {ready && (
            <div class="charts">
              {byEvidence(plans.slice(1), told.causes).map((plan) => (
                <PlannedChart
                  key={plan.title}
                  plan={plan}
                  series={series}
                  halfLife={halfLife}
                  marks={alarms}
                  {...shared}
                />
              ))}
            </div>
          )}
        </div>
      </div>
    </div>
  );
}

type PlannedChartProps = {
  plan: (typeof CHARTS)[number];
  series: Parameters<typeof linesOf>[1];
  halfLife: number;
} & Pick<Parameters<typeof Chart>[0], "group" | "range" | "whole" | "onRange" | "marks">;

function PlannedChart({ plan, series, halfLife, ...shared }: PlannedChartProps): JSX.Element | null {
  const lines = linesOf(plan, series, halfLife);
  return lines.length ? (
    <Chart
      {...shared}
      title={plan.title}
      explained={plan.explained}
      unit={plan.unit}
      lines={lines}
      log={plan.log}
      legend={lines.length > 3 ? "below" : "beside"}
    />
  ) : null;
}

/** Findings may hold from step 0 on, before anything was measured; points that stand for several steps end before the last one. */
const wholeRun = ({ from, to }: Range, steps: number): Range => ({
  from: from <= 1 ? 0 : from,
  to: Math.max(to, steps),
});

/** A zoom that reached to the newest step goes on with it. */
function useSliding(range: Range | null, whole: Range, isFollowing: boolean): void {
  const before = useRef(whole.to);
  useEffect(() => {
    const last = before.current;
    before.current = whole.to;
    if (isFollowing && range && range.to >= last && whole.to > last)
      showRange({ from: range.from + whole.to - last, to: whole.to });
  }, [whole.to]);
}
