/** The columns of the table of runs. */

import type { ComponentChildren } from "preact";
import type { RunLine } from "../api/types";
import { Sparkline } from "../charts/sparkline";
import { VerdictMark } from "../findings/severity";
import { ago, fromJson, number, plain, seconds, whole } from "../words/quantities";
import type { Value } from "./filtering";

export interface Column {
  name: string;
  title: string;
  width: string;
  value: (run: RunLine) => Value;
  show: (run: RunLine, now: number) => ComponentChildren;
  isNumber?: boolean;
}

const VERDICTS = ["healthy", "info", "unknown", "warning", "critical"];
/** As many settings are shown at first. */
const SETTINGS = 4;

const shown = (value: number | null, format: (value: number) => string): string =>
  value === null ? "–" : format(value);

export const COLUMNS: Column[] = [
  {
    name: "verdict",
    title: "Verdict",
    width: "104px",
    value: (run) => VERDICTS.indexOf(run.verdict),
    show: (run) => <VerdictMark verdict={run.verdict} short />,
  },
  {
    name: "name",
    title: "Run",
    width: "minmax(180px, 2fr)",
    value: (run) => run.name,
    show: (run) => (
      <span class="name" title={run.id}>
        {folderOf(run) && <span class="folder">{folderOf(run)}</span>}
        {run.name}
        {run.tags.map((tag) => (
          <span class="tag" key={tag}>
            {tag}
          </span>
        ))}
      </span>
    ),
  },
  { name: "state", title: "State", width: "86px", value: (run) => run.state, show: (run) => <State run={run} /> },
  {
    name: "steps",
    title: "Steps",
    width: "80px",
    isNumber: true,
    value: (run) => run.steps,
    show: (run) => whole(run.steps),
  },
  {
    name: "loss",
    title: "Loss",
    width: "82px",
    isNumber: true,
    value: (run) => fromJson(run.loss),
    show: (run) => shown(fromJson(run.loss), number),
  },
  {
    name: "curve",
    title: "",
    width: "112px",
    value: () => null,
    show: (run) => <Sparkline values={run.spark.map(fromJson)} label={`Loss of ${run.name}`} />,
  },
  {
    name: "rate",
    title: "Learning rate",
    width: "96px",
    isNumber: true,
    value: (run) => fromJson(run.lr),
    show: (run) => shown(fromJson(run.lr), number),
  },
  {
    name: "step_time",
    title: "Step time",
    width: "84px",
    isNumber: true,
    value: (run) => fromJson(run.step_s),
    show: (run) => shown(fromJson(run.step_s), seconds),
  },
  {
    name: "updated",
    title: "Updated",
    width: "92px",
    isNumber: true,
    value: (run) => run.updated,
    show: (run, now) => ago(run.updated, now),
  },
];

export const NOTE: Column = {
  name: "note",
  title: "Note",
  width: "minmax(90px, 1fr)",
  value: (run) => run.note,
  show: (run) => (
    <span class="note" title={run.note}>
      {run.note}
    </span>
  ),
};

/** Where a run lies, if that tells more than its name. */
const folderOf = ({ id }: RunLine): string => (id.includes("/") ? id.slice(0, id.lastIndexOf("/") + 1) : "");

export function State({ run }: { run: Pick<RunLine, "state" | "reason"> }): ComponentChildren {
  return (
    <span class={`state ${run.state}`} title={run.reason}>
      {run.state}
    </span>
  );
}

/** A column for a setting of the configuration. */
export function settingColumn(name: string): Column {
  const value = (run: RunLine): Value => run.config[name];
  const show = (run: RunLine): string => (run.config[name] === undefined ? "–" : plain(run.config[name]));
  return { name: `config.${name}`, title: name, width: "minmax(70px, 0.7fr)", value, show, isNumber: true };
}

/** Settings by name, and those that tell runs apart most: they differ, and most runs have them. */
export function settingNames(runs: RunLine[]): { all: string[]; telling: string[] } {
  const seen = new Map<string, { runs: number; values: Set<unknown> }>();
  for (const { config } of runs)
    for (const [name, value] of Object.entries(config)) {
      const known = seen.get(name) ?? { runs: 0, values: new Set() };
      seen.set(name, { runs: known.runs + 1, values: known.values.add(value) });
    }
  const telling = [...seen].filter(([, { values }]) => values.size > 1).toSorted(([, a], [, b]) => b.runs - a.runs);
  return { all: [...seen.keys()].toSorted(), telling: telling.slice(0, SETTINGS).map(([name]) => name) };
}

/** What a filter finds under a name: a column, a setting, or one of the run's tags. */
export function lookup(run: RunLine, name: string): Value {
  if (name === "verdict") return run.verdict;
  if (name === "tag") return run.tags.join(" ");
  if (name === "lr" && run.config["lr"] === undefined) return fromJson(run.lr);
  const column = [...COLUMNS, NOTE].find((one) => one.name === name);
  if (column) return column.value(run);
  return run.config[name.replace(/^config\./, "")];
}

/** All words of a run that a filter looks through. */
export const searchText = (run: RunLine): string =>
  [run.id, run.name, run.verdict, run.state, run.note, ...run.tags].join(" ");
