/** What `sonde compare` says of runs: what was set differently, where they part, and how they fared. */

import type { ComponentChildren, JSX } from "preact";
import type { Against, Comparison, Divergence } from "../api/types";
import { number, plain, whole } from "../words/quantities";

const HEALTH: [string, string][] = [
  ["steps", "steps"],
  ["ending", "state"],
  ["final", "loss, end"],
  ["best", "loss, best"],
  ["validation_best", "validation, best"],
  ["lr_highest", "highest learning rate"],
  ["gradient_norm", "gradient norm"],
  ["update_ratio", "update ratio"],
  ["step_s", "seconds a step"],
];
const MOST_SETTINGS = 60;

export function Differences({ comparison, names }: { comparison: Comparison; names: string[] }): JSX.Element {
  const settings = comparison.settings.slice(0, MOST_SETTINGS);
  return (
    <div class="differences">
      <section>
        <h2>Where they part</h2>
        <p class="remark">{names[0]} is what the others are held against.</p>
        {comparison.against.map((against, i) => (
          <Parting key={i} against={against} name={names[i + 1] ?? against.label} by={comparison.by} />
        ))}
      </section>
      <section>
        <h2>What was set differently</h2>
        {settings.length ? (
          <DiffTable
            names={names}
            rows={settings.map(({ key, values, present }) => [
              key.replace(/^config\./, ""),
              values.map((value, i) => (present[i] ? plain(value) : "not set")),
            ])}
          />
        ) : (
          <p>Nothing that was recorded.</p>
        )}
        {comparison.settings.length > settings.length && (
          <p class="remark">
            and {comparison.settings.length - settings.length} more: <code>sonde compare</code> lists all.
          </p>
        )}
      </section>
      <section>
        <h2>How they fared</h2>
        <DiffTable
          names={names}
          rows={HEALTH.map(([key, title]) => [title, comparison.runs.map(({ health }) => healthText(health[key]))])}
        />
      </section>
    </div>
  );
}

function Parting({ against, name, by }: { against: Against; name: string; by: string }): JSX.Element {
  const separation = against.curves?.separation;
  const models = against.parameters.length + against.modules.length;
  return (
    <div class="parting">
      <h3>{name}</h3>
      <ul>
        {separation && (
          <li>
            The loss separates at {by} {whole(Number(separation.since))} (± {number(Number(separation.resolution), 2)}):
            from there on {number(Math.abs(Number(separation.difference)))}{" "}
            {Number(separation.difference) > 0 ? "higher" : "lower"}, {number(Number(separation.scatters), 2)} times the
            scatter of a value.
          </li>
        )}
        {!separation && against.curves && (
          <li>
            The losses do not separate
            {against.curves.undecided ? `: ${against.curves.undecided}` : " by more than their scatter"}.
          </li>
        )}
        {against.divergence?.whole && <FirstDifference of="The run" divergence={against.divergence.whole} />}
        {against.divergence?.layers && <FirstDifference of="Its layers" divergence={against.divergence.layers} />}
        {models > 0 && <li>The models differ: {modelWords(against)}.</li>}
      </ul>
    </div>
  );
}

function FirstDifference({ of, divergence }: { of: string; divergence: Divergence }): JSX.Element {
  const { exact, beyond_tolerance: beyond, values_compared: compared } = divergence;
  const first = beyond ?? exact;
  if (!first)
    return (
      <li>
        {of}: identical in all {whole(compared)} values that both have.
      </li>
    );
  const [here, there] = first.values.map((value) => (value === null ? "not measured" : number(Number(value))));
  return (
    <li>
      {of}: first different at step {whole(first.step)}, in <code>{first.tag}</code>: {here} → {there}
      {beyond ? "" : ", by no more than rounding"}.
    </li>
  );
}

function modelWords({ parameters, modules }: Against): string {
  const shown = [
    ...parameters.map(({ name, change }) => `${name} ${change}`),
    ...modules.map(({ name, types }) => `${name} ${types.map((type) => type ?? "absent").join(" → ")}`),
  ];
  return shown.length > 6 ? `${shown.slice(0, 6).join(", ")} and ${shown.length - 6} more` : shown.join(", ");
}

function DiffTable({ names, rows }: { names: string[]; rows: [string, string[]][] }): JSX.Element {
  return (
    <div class="scroll">
      <table class="diff">
        <thead>
          <tr>
            <th />
            {names.map((name, i) => (
              <th key={i}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([title, values]) => (
            <tr key={title}>
              <th>{title}</th>
              {values.map((value, i) => (
                <Cell key={i} isDifferent={value !== values[0]}>
                  {value}
                </Cell>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const Cell = ({ isDifferent, children }: { isDifferent: boolean; children: ComponentChildren }): JSX.Element => (
  <td class={isDifferent ? "different" : ""}>{children}</td>
);

function healthText(value: unknown): string {
  const read = value === "NaN" || value === "Infinity" || value === "-Infinity" ? Number(value) : value;
  if (typeof read === "number") return Number.isInteger(read) ? whole(read) : number(read);
  return plain(read);
}
