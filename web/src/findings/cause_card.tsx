/** One cause: how sure, where, since when, why, what to do, and what it is seen by. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Finding, Remedy } from "../api/types";
import { Words } from "../markdown/markdown";
import { toFinding, toLayers } from "../routing/navigation";
import { causeMeaning, causeTitle, sentence } from "../words/meanings";
import { percent, whole } from "../words/quantities";
import { stepsPhrase, wherePhrase, type Cause } from "./groups";
import { Sign } from "./severity";

const SHOWN_SYMPTOMS = 4;

export function CauseCard({
  run,
  cause,
  isFirst,
  chosen,
}: {
  run: string;
  cause: Cause;
  isFirst: boolean;
  chosen: string;
}): JSX.Element {
  const { group, symptoms } = cause;
  const meaning = group.cause ? causeMeaning(group.cause) : "";
  return (
    <details class={`cause ${group.severity}`} open={isFirst}>
      <summary>
        <Sign of={group.severity} />
        <h3>
          {group.cause === null && symptoms.length === 1 ? causeTitle(symptoms[0].name) : causeTitle(group.cause)}
        </h3>
        <span class="since">
          since step {whole(group.first_step)}
          {group.open ? "" : ", over"}
        </span>
        {group.cause !== null && <Confidence share={group.confidence} />}
      </summary>
      {meaning && <p class="meaning">{sentence(meaning)}</p>}
      {group.place && <Place run={run} place={group.place} step={group.first_step} />}
      {group.because && (
        <p class="because">
          <Words text={sentence(group.because)} />
        </p>
      )}
      <Remedies remedies={group.remedies} />
      <Symptoms run={run} symptoms={symptoms} chosen={chosen} />
      {group.others.length > 0 && (
        <p class="others">
          Less likely:{" "}
          {group.others
            .map((other) => `${causeTitle(other.cause).toLowerCase()} (${percent(other.confidence)})`)
            .join(", ")}
        </p>
      )}
    </details>
  );
}

export function Confidence({ share }: { share: number }): JSX.Element {
  return (
    <span class="confidence" title="How sure it is that this is the cause">
      <svg viewBox="0 0 40 4" aria-hidden="true">
        <rect width="40" height="4" rx="2" class="all" />
        <rect width={40 * share} height="4" rx="2" class="part" />
      </svg>
      {percent(share)} sure
    </span>
  );
}

function Place({ run, place, step }: { run: string; place: string; step: number }): JSX.Element {
  const isCode = /:\d+$/.test(place);
  return (
    <p class="place">
      at <code>{place}</code>
      {!isCode && <a href={toLayers(run, { layer: place, step })}>see the layer</a>}
    </p>
  );
}

export function Remedies({ remedies }: { remedies: Remedy[] }): JSX.Element | null {
  if (!remedies.length) return null;
  return (
    <div class="remedies">
      <h4>Try</h4>
      <ol>
        {remedies.map((remedy, i) => (
          <li key={i}>
            <Words text={remedy.text.charAt(0).toUpperCase() + remedy.text.slice(1)} />
            {remedy.safety !== "advice" && (
              <span class="tag" title="Sonde can do this">
                {remedy.safety}
              </span>
            )}
          </li>
        ))}
      </ol>
    </div>
  );
}

function Symptoms({ run, symptoms, chosen }: { run: string; symptoms: Finding[]; chosen: string }): JSX.Element {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? symptoms : symptoms.slice(0, SHOWN_SYMPTOMS);
  return (
    <div class="symptoms">
      <h4>Seen by</h4>
      <ul>
        {shown.map((finding) => (
          <li key={finding.id}>
            <FindingLine run={run} finding={finding} isChosen={finding.id === chosen} />
          </li>
        ))}
      </ul>
      {symptoms.length > shown.length && (
        <button class="link" onClick={() => setWhole(true)}>
          {symptoms.length - shown.length} more
        </button>
      )}
    </div>
  );
}

export function FindingLine({
  run,
  finding,
  isChosen,
}: {
  run: string;
  finding: Finding;
  isChosen: boolean;
}): JSX.Element {
  return (
    <a class={`finding-line${isChosen ? " chosen" : ""}`} href={toFinding(run, finding.id)} data-finding={finding.id}>
      <Sign of={finding.severity} />
      <span class="code">{finding.code}</span>
      <span class="name">{finding.name}</span>
      <span class="where">{wherePhrase(finding.where)}</span>
      <span class="steps">{stepsPhrase(finding)}</span>
      <span class="message">
        <Words text={finding.message} />
      </span>
    </a>
  );
}
