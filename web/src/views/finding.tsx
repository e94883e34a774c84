/** One finding: what, since when, the evidence around its onset, why, what to do, and the rule that found it. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { Finding, Run } from "../api/types";
import { Confidence, FindingLine, Remedies } from "../findings/cause_card";
import { stepsPhrase, tell } from "../findings/groups";
import { MuteButton } from "../findings/mute_button";
import { RulePage } from "../findings/rule_page";
import { Sign } from "../findings/severity";
import { useKeys } from "../keyboard/keys";
import { Words } from "../markdown/markdown";
import { Notice, Progress, Trouble } from "../parts/notices";
import { go, toFinding, toLayers, toRun } from "../routing/navigation";
import { causeMeaning, causeTitle, sentence } from "../words/meanings";
import { EvidenceCharts } from "./finding_evidence";
import { GoneNotice } from "./run";
import { useRun, type WatchedRun } from "./use_run";
import type { ViewProps } from "./view";

const SHOWN_PLACES = 12;

export function FindingPage({ parts, query }: ViewProps): JSX.Element {
  const watched = useRun(parts["run"]);
  const run = watched.value;
  if (!run)
    return watched.refusal ? (
      <Trouble refusal={watched.refusal} retry={watched.reload} />
    ) : (
      <Progress slow={watched.slow} of="the finding" />
    );
  const finding = run.findings.find((one) => one.id === parts["finding"]);
  if (!finding)
    return (
      <Notice title={`There is no finding ${parts["finding"]}.`}>
        <p>
          It may be of another diagnosis of this run. <a href={toRun(run.id)}>See what is known of the run</a>
        </p>
      </Notice>
    );
  return <Told run={run} finding={finding} watched={watched} query={query} />;
}

function Told({
  run,
  finding,
  watched,
  query,
}: {
  run: Run;
  finding: Finding;
  watched: WatchedRun;
  query: URLSearchParams;
}): JSX.Element {
  const told = useMemo(() => tell(run), [run]);
  const order = [...told.causes.flatMap((cause) => cause.symptoms), ...told.notes, ...told.muted];
  const place = order.indexOf(finding);
  const open = (by: number): void => {
    const next = order[place + by];
    if (next) go(toFinding(run.id, next.id));
  };
  useKeys({ j: () => open(1), k: () => open(-1) });
  const siblings =
    told.causes.find((cause) => cause.symptoms.includes(finding))?.symptoms.filter((other) => other !== finding) ?? [];
  return (
    <article class="finding-view">
      {watched.isGone && <GoneNotice />}
      <header class={`verdict ${finding.severity}`}>
        <Sign of={finding.severity} />
        <div>
          <h1>
            <span class="code">{finding.code}</span> {causeTitle(finding.name)}
          </h1>
          <p>
            {finding.severity} · {stepsPhrase(finding)} · <a href={toRun(run.id)}>{run.name}</a>
            {finding.muted ? " · muted" : ""}
          </p>
        </div>
        <MuteButton run={run} finding={finding} onChange={watched.reload} />
      </header>
      <p class="message">
        <Words text={sentence(finding.message)} />
      </p>
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
              <ul>
                {siblings.slice(0, 8).map((other) => (
                  <li key={other.id}>
                    <FindingLine run={run.id} finding={other} isChosen={false} />
                  </li>
                ))}
              </ul>
            </section>
          )}
        </div>
      </div>
      <RulePage finding={finding} />
    </article>
  );
}

function Places({ run, finding }: { run: Run; finding: Finding }): JSX.Element | null {
  if (!finding.where.length) return null;
  const rest = finding.where.length - SHOWN_PLACES;
  return (
    <p class="places">
      {finding.where.slice(0, SHOWN_PLACES).map((place) => (
        <a key={place} href={toLayers(run.id, { layer: place, step: finding.first_step })}>
          <code>{place}</code>
        </a>
      ))}
      {rest > 0 && <span>and {rest} more</span>}
    </p>
  );
}

function Causes({ finding }: { finding: Finding }): JSX.Element {
  if (!finding.causes.length)
    return (
      <section>
        <h4>Likely causes</h4>
        <p class="remark">This finding alone points to none.</p>
      </section>
    );
  return (
    <section class="suspects">
      <h4>Likely causes</h4>
      <ol>
        {finding.causes.map((suspect) => (
          <li key={suspect.cause}>
            <div>
              <strong title={causeMeaning(suspect.cause)}>{causeTitle(suspect.cause)}</strong>{" "}
              <Confidence share={suspect.confidence} />
            </div>
            <p>
              <Words text={sentence(suspect.because)} />
            </p>
          </li>
        ))}
      </ol>
    </section>
  );
}
