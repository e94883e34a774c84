/** What is wrong with a run, before anything else. */

import type { JSX } from "preact";
import type { Run } from "../api/types";
import { causeTitle } from "../words/meanings";
import { count, whole } from "../words/quantities";
import { CauseCard, FindingLine } from "./cause_card";
import { tell, type Told } from "./groups";
import { Sign, verdictWord } from "./severity";

export function DiagnosisPanel({ run, chosen }: { run: Run; chosen: string }): JSX.Element {
  const told = tell(run);
  return (
    <section class="diagnosis" aria-label="Diagnosis">
      <header class={`verdict ${run.verdict}`}>
        <Sign of={run.verdict === "info" ? "healthy" : run.verdict} />
        <div>
          <h2>{headline(run, told)}</h2>
          <p>{detail(run, told)}</p>
        </div>
      </header>
      {told.causes.map((cause, i) => (
        <CauseCard
          key={`${cause.group.cause} ${cause.group.first_step}`}
          run={run.id}
          cause={cause}
          isFirst={i === 0}
          chosen={chosen}
        />
      ))}
      <Folded
        title={count(told.notes.length, "note")}
        isOpen={!told.causes.length}
        findings={told.notes}
        run={run.id}
        chosen={chosen}
      />
      <Folded
        title={`${count(told.muted.length, "finding")} muted`}
        findings={told.muted}
        run={run.id}
        chosen={chosen}
      />
      <NotMeasured run={run} />
    </section>
  );
}

function headline(run: Run, { causes }: Told): string {
  if (run.diagnosis === "working") return "Being diagnosed …";
  if (!causes.length) return verdictWord(run.verdict).replace(/^./, (letter) => letter.toUpperCase());
  const [first] = causes;
  const word = run.verdict === "critical" ? "Critical" : "Warning";
  return `${word}: ${causeTitle(first.group.cause ?? first.symptoms[0].name).toLowerCase()}`;
}

function detail(run: Run, { causes, notes }: Told): string {
  if (run.diagnosis === "working") return "The run came without findings; its series are being judged now.";
  const rest = causes.length > 1 ? `; ${count(causes.length - 1, "more cause")} below` : "";
  if (causes.length) return `Since step ${whole(causes[0].group.first_step)} of ${whole(run.steps)}${rest}.`;
  if (run.verdict === "unknown") return `${count(run.steps, "step")}: too few, or no loss, to say more.`;
  return `Nothing wrong was found in ${count(run.steps, "step")}${notes.length ? `; ${count(notes.length, "note")} below` : ""}.`;
}

interface FoldedProps {
  title: string;
  findings: Run["findings"];
  run: string;
  chosen: string;
  isOpen?: boolean;
}

function Folded({ title, findings, run, chosen, isOpen = false }: FoldedProps): JSX.Element | null {
  if (!findings.length) return null;
  return (
    <details class="folded" open={isOpen || findings.some((finding) => finding.id === chosen)}>
      <summary>{title}</summary>
      <ul>
        {findings.map((finding) => (
          <li key={finding.id}>
            <FindingLine run={run} finding={finding} isChosen={finding.id === chosen} />
          </li>
        ))}
      </ul>
    </details>
  );
}

function NotMeasured({ run }: { run: Run }): JSX.Element | null {
  const lines = [...run.problems, ...run.not_measured.map((what) => `Not measured: ${what}`)];
  if (!lines.length) return null;
  return (
    <details class="folded">
      <summary>{count(lines.length, "thing")} could not be judged</summary>
      <ul class="plain">
        {lines.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
    </details>
  );
}
