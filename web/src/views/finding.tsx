/** One finding: what, since when, the evidence around its onset, why, what to do, and the rule that found it. */

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { useLoaded } from "../api/loading";
import { addNote, Refusal, rule as loadRule } from "../api/requests";
import type { Finding, Precision, Run } from "../api/types";
import { Chart } from "../charts/chart";
import { readRange, within, type Range } from "../charts/ranges";
import { useSeries } from "../charts/series";
import { showRange, Toolbar } from "../charts/toolbar";
import { Confidence, FindingLine, Remedies } from "../findings/cause_card";
import { marksOf, stepsPhrase, tell } from "../findings/groups";
import { Sign } from "../findings/severity";
import { useKeys } from "../keyboard/keys";
import { Markdown, Words } from "../markdown/markdown";
import { Notice, Progress, Trouble } from "../parts/notices";
import { go, toFinding, toLayers, toRun } from "../routing/navigation";
import { causeMeaning, causeTitle, meaning, sentence } from "../words/meanings";
import { fromJson, number, percent } from "../words/quantities";
import { GoneNotice } from "./run";
import { useRun, type WatchedRun } from "./use_run";
import type { ViewProps } from "./view";

const MOST_CHARTS = 6;
const SHOWN_PLACES = 12;
/** Beside the evidence, so that every finding shows what it did to the training. */
const ALWAYS = "loss";

export function FindingPage({ parts, query }: ViewProps): JSX.Element {
  const watched = useRun(parts["run"]);
  const run = watched.value;
  if (!run) return watched.refusal ? <Trouble refusal={watched.refusal} retry={watched.reload} /> : <Progress slow={watched.slow} of="the finding" />;
  const finding = run.findings.find((one) => one.id === parts["finding"]);
  if (!finding)
    return (
      <Notice title={`There is no finding ${parts["finding"]}.`}>
        <p>It may be of another diagnosis of this run. <a href={toRun(run.id)}>See what is known of the run</a></p>
      </Notice>
    );
  return <Told run={run} finding={finding} watched={watched} query={query} />;
}

function Told({ run, finding, watched, query }: { run: Run; finding: Finding; watched: WatchedRun; query: URLSearchParams }): JSX.Element {
  const told = useMemo(() => tell(run), [run]);
  const order = [...told.causes.flatMap((cause) => cause.symptoms), ...told.notes, ...told.muted];
  const place = order.indexOf(finding);
  const open = (by: number): void => {
    const next = order[place + by];
    if (next) go(toFinding(run.id, next.id));
  };
  useKeys({ j: () => open(1), k: () => open(-1) });
  const siblings = told.causes.find((cause) => cause.symptoms.includes(finding))?.symptoms.filter((other) => other !== finding) ?? [];
  return (
    <article class="finding-view">
      {watched.isGone && <GoneNotice />}
      <header class={`verdict ${finding.severity}`}>
        <Sign of={finding.severity} />
        <div>
          <h1>
            <span class="code">{finding.code}</span> {causeTitle(finding.name)}
          </h1>
          <p>{finding.severity} · {stepsPhrase(finding)} · <a href={toRun(run.id)}>{run.name}</a>{finding.muted ? " · muted" : ""}</p>
        </div>
        <MuteButton run={run} finding={finding} onChange={watched.reload} />
      </header>
      <p class="message"><Words text={sentence(finding.message)} /></p>
      <Places run={run} finding={finding} />
      <div class="columns">
        <div class="main-column">
          <EvidenceCharts run={run} finding={finding} query={query} />
        </div>
        <div class="side-column">
          <Causes finding={finding} />
          <Remedies remedies={finding.remedies} />
          {siblings.length > 0 && (
            <section class="symptoms">
              <h4>Found together with</h4>
              <ul>{siblings.slice(0, 8).map((other) => <li key={other.id}><FindingLine run={run.id} finding={other} isChosen={false} /></li>)}</ul>
            </section>
          )}
        </div>
      </div>
      <RulePage finding={finding} />
    </article>
  );
}

function MuteButton({ run, finding, onChange }: { run: Run; finding: Finding; onChange: () => void }): JSX.Element {
  const [problem, setProblem] = useState("");
  const change = async (): Promise<void> => {
    try {
      await addNote(run.id, { kind: finding.muted ? "unmute" : "mute", code: finding.code, first_step: finding.first_step });
      setProblem("");
      onChange();
    } catch (error) {
      setProblem(error instanceof Refusal ? `${error.what} ${error.remedy}` : String(error));
    }
  };
  return (
    <div class="mute">
      <button onClick={change} title="A muted finding does not count. It is kept with the run, and undone as easily.">{finding.muted ? "Unmute" : "Mute"}</button>
      {problem && <p role="alert">{problem}</p>}
    </div>
  );
}

function Places({ run, finding }: { run: Run; finding: Finding }): JSX.Element | null {
  if (!finding.where.length) return null;
  const rest = finding.where.length - SHOWN_PLACES;
  return (
    <p class="places">
      {finding.where.slice(0, SHOWN_PLACES).map((place) => (
        <a key={place} href={toLayers(run.id, { layer: place, step: finding.first_step })}><code>{place}</code></a>
      ))}
      {rest > 0 && <span>and {rest} more</span>}
    </p>
  );
}

/** The series that the finding names, from well before its onset on. */
function EvidenceCharts({ run, finding, query }: { run: Run; finding: Finding; query: URLSearchParams }): JSX.Element {
  const tags = useMemo(() => [...new Set([...finding.evidence.map((one) => one.tag), ALWAYS])].slice(0, MOST_CHARTS), [finding]);
  const whole = { from: 0, to: Math.max(run.steps, 1) };
  const asked = readRange(query);
  const range = asked ?? onset(finding, whole);
  const { series, slow, ready, refusal } = useSeries(run.id, tags, range, -1);
  const marks = useMemo(() => marksOf(run.id, [{ ...finding, muted: false }], ["info", "warning", "critical"]), [finding]);
  if (refusal) return <Trouble refusal={refusal} />;
  if (!ready) return <Progress slow={slow} of="evidence" />;
  return (
    <>
      <Toolbar range={range} whole={whole} smoothing={null} />
      {tags.map((tag) => {
        const { title, unit, explained } = meaning(tag);
        const points = series.get(tag);
        const expected = finding.evidence.filter((one) => one.tag === tag && one.expected !== null);
        const levels = [...new Map(expected.map((one) => [one.expected, { value: fromJson(one.expected) ?? NaN, label: `expected ${number(fromJson(one.expected) ?? NaN)}` }])).values()];
        const lines = points?.x.length ? [{ tag, label: title, colour: "main", points, smoothing: 0, dots: points.x.length < 100 }] : [];
        return <Chart key={tag} group="finding" title={title} unit={unit} explained={explained} lines={lines} log="auto" range={range} whole={whole} onRange={(next) => showRange(next ?? whole)} marks={marks} levels={levels.slice(0, 2)} empty={`${tag} was not kept.`} />;
      })}
    </>
  );
}

/** Around the onset: as long before it as it lasted, and at least a tenth of the run on each side. */
function onset(finding: Finding, whole: Range): Range | null {
  const length = Math.max(finding.last_step - finding.first_step, (whole.to - whole.from) / 10, 20);
  return within({ from: finding.first_step - length, to: Math.min(finding.last_step, finding.first_step + 4 * length) + length }, whole);
}

function Causes({ finding }: { finding: Finding }): JSX.Element {
  if (!finding.causes.length) return <section><h4>Likely causes</h4><p class="remark">This finding alone points to none.</p></section>;
  return (
    <section class="suspects">
      <h4>Likely causes</h4>
      <ol>
        {finding.causes.map((suspect) => (
          <li key={suspect.cause}>
            <div><strong title={causeMeaning(suspect.cause)}>{causeTitle(suspect.cause)}</strong> <Confidence share={suspect.confidence} /></div>
            <p><Words text={sentence(suspect.because)} /></p>
          </li>
        ))}
      </ol>
    </section>
  );
}

function RulePage({ finding }: { finding: Finding }): JSX.Element | null {
  const { value: rule, slow } = useLoaded(`rule ${finding.code}`, () => loadRule(finding.code));
  if (!rule) return slow ? <Progress slow of="the manual page" /> : null;
  return (
    <section class="rule-page" aria-label={`Manual page of ${rule.code}`}>
      <h2>The rule <span class="code">{rule.code}</span></h2>
      <p class="remark">{rule.tier === "preview" ? "A preview rule: it only informs. " : ""}{precisionPhrase(rule.precision)}</p>
      <Markdown text={withoutTitle(rule.page)} />
    </section>
  );
}

/** The page begins with the rule's code and name, which stand above it already. */
const withoutTitle = (page: string): string => page.replace(/^\s*#{1,3} .*\n/, "");

function precisionPhrase(precision: Precision | null): string {
  if (!precision) return "How often its alarms are right was not measured.";
  const { right, alarms } = precision;
  return `${right} of its ${alarms} alarms were right (${percent(right / alarms)}) in the trainings of Sonde's own project.`;
}
