/** What a run was configured with, and where it ran. */

import type { JSX } from "preact";
import type { Run } from "../api/types";
import { Notice } from "../parts/notices";
import { plain } from "../words/quantities";

export function Settings({ run }: { run: Run }): JSX.Element {
  return (
    <>
      {Object.keys(run.config).length ? (
        <Facts title="Configuration" facts={run.config} isOpen />
      ) : (
        <Notice title="No configuration was recorded.">
          <p>
            Give it to <code>sonde.watch(…, config=…)</code>: then runs can be sorted and compared by it.
          </p>
        </Notice>
      )}
      <Facts title="Environment" facts={run.environment} isOpen={false} />
    </>
  );
}

function Facts({
  title,
  facts,
  isOpen,
}: {
  title: string;
  facts: Record<string, unknown>;
  isOpen: boolean;
}): JSX.Element | null {
  const names = Object.keys(facts);
  if (!names.length) return null;
  return (
    <details class="folded settings" open={isOpen}>
      <summary>{title}</summary>
      <dl class="facts-list">
        {names.map((name) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{plain(facts[name])}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
