/** The head of a run: its name, how it stands, and its newest numbers. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { StepNews } from "../api/live";
import type { Run } from "../api/types";
import { NotesDialog } from "../parts/notes_dialog";
import { State } from "../tables/run_columns";
import { ago, fromJson, number, seconds, whole } from "../words/quantities";

export function RunFacts({
  run,
  newest,
  onChange,
}: {
  run: Run;
  newest: StepNews | null;
  onChange: () => void;
}): JSX.Element {
  const [isEditing, setEditing] = useState(false);
  const steps = Math.max(run.steps, newest?.step ?? 0);
  const loss = fromJson(newest?.last["loss"] ?? run.loss);
  const rate = fromJson(newest?.last["lr"] ?? run.lr);
  const stepTime = fromJson(newest?.last["time/step"] ?? run.step_s);
  const facts: [string, string][] = [
    ["steps", whole(steps)],
    ["loss", loss === null ? "–" : number(loss)],
    ["learning rate", rate === null ? "–" : number(rate)],
    ["a step", stepTime === null ? "–" : seconds(stepTime)],
    [run.state === "running" ? "last step" : "ended", ago(newest?.time ?? run.updated, Date.now() / 1000)],
  ];
  return (
    <header class="run-facts">
      <h1 title={run.id}>{run.name}</h1>
      <State run={run} />
      {run.tags.map((tag) => (
        <span class="tag" key={tag}>
          {tag}
        </span>
      ))}
      <button class="plain" onClick={() => setEditing(true)} aria-label="Tags and note" title="Tags and note">
        ✎
      </button>
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd class={value === "NaN" || value.endsWith("infinite") ? "lost" : ""}>{value}</dd>
          </div>
        ))}
      </dl>
      {run.note && <p class="note">{run.note}</p>}
      {run.problem && <p class="note problem">{run.problem}</p>}
      {isEditing && <NotesDialog run={run} onClose={() => setEditing(false)} onChange={onChange} />}
    </header>
  );
}
