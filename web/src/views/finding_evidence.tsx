/** The evidence of a finding, around its onset. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { Finding, Run } from "../api/types";
import { Chart } from "../charts/chart";
import { readRange, within, type Range } from "../charts/ranges";
import { useSeries } from "../charts/series";
import { showRange, Toolbar } from "../charts/toolbar";
import { marksOf } from "../findings/groups";
import { Progress, Trouble } from "../parts/notices";
import { meaning } from "../words/meanings";
import { fromJson, number } from "../words/quantities";

const MOST_CHARTS = 6;
/** Beside the evidence, so that every finding shows what it did to the training. */
const ALWAYS = "loss";

/** The series that the finding names, from well before its onset on. */
export function EvidenceCharts({
  run,
  finding,
  query,
}: {
  run: Run;
  finding: Finding;
  query: URLSearchParams;
}): JSX.Element {
  const tags = useMemo(
    () => [...new Set([...finding.evidence.map((one) => one.tag), ALWAYS])].slice(0, MOST_CHARTS),
    [finding],
  );
  const whole = { from: 0, to: Math.max(run.steps, 1) };
  const asked = readRange(query);
  const range = asked ?? onset(finding, whole);
  const { series, slow, ready, refusal } = useSeries(run.id, tags, range, -1);
  const marks = useMemo(
    () => marksOf(run.id, [{ ...finding, muted: false }], ["info", "warning", "critical"]),
    [finding],
  );
  if (refusal) return <Trouble refusal={refusal} />;
  if (!ready) return <Progress slow={slow} of="evidence" />;
  return (
    <>
      <Toolbar range={range} whole={whole} smoothing={null} />
      {tags.map((tag) => {
        const { title, unit, explained } = meaning(tag);
        const points = series.get(tag);
        const expected = finding.evidence.filter((one) => one.tag === tag && one.expected !== null);
        const levels = [
          ...new Map(
            expected.map((one) => [
              one.expected,
              { value: fromJson(one.expected) ?? NaN, label: `expected ${number(fromJson(one.expected) ?? NaN)}` },
            ]),
          ).values(),
        ];
        const lines = points?.x.length
          ? [{ tag, label: title, colour: "main", points, smoothing: 0, dots: points.x.length < 100 }]
          : [];
        return (
          <Chart
            key={tag}
            group="finding"
            title={title}
            unit={unit}
            explained={explained}
            lines={lines}
            log="auto"
            range={range}
            whole={whole}
            onRange={(next) => showRange(next ?? whole)}
            marks={marks}
            levels={levels.slice(0, 2)}
            empty={`${tag} was not kept.`}
          />
        );
      })}
    </>
  );
}

/** Around the onset: as long before it as it lasted, and at least a tenth of the run on each side. */
function onset(finding: Finding, whole: Range): Range | null {
  const length = Math.max(finding.last_step - finding.first_step, (whole.to - whole.from) / 10, 20);
  return within(
    { from: finding.first_step - length, to: Math.min(finding.last_step, finding.first_step + 4 * length) + length },
    whole,
  );
}
