/** Keeps a finding from counting, and undoes it. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { addNote, Refusal } from "../api/requests";
import type { Finding, Run } from "../api/types";

export function MuteButton({
  run,
  finding,
  onChange,
}: {
  run: Run;
  finding: Finding;
  onChange: () => void;
}): JSX.Element {
  const [problem, setProblem] = useState("");
  const change = async (): Promise<void> => {
    try {
      await addNote(run.id, {
        kind: finding.muted ? "unmute" : "mute",
        code: finding.code,
        first_step: finding.first_step,
      });
      setProblem("");
      onChange();
    } catch (error) {
      setProblem(error instanceof Refusal ? `${error.what} ${error.remedy}` : String(error));
    }
  };
  return (
    <div class="mute">
      <button onClick={change} title="A muted finding does not count. It is kept with the run, and undone as easily.">
        {finding.muted ? "Unmute" : "Mute"}
      </button>
      {problem && <p role="alert">{problem}</p>}
    </div>
  );
}
