/** What the server answers. */

/** A number as JSON holds it: what is not finite is text. */
export type JsonNumber = number | "NaN" | "Infinity" | "-Infinity";

export type Severity = "info" | "warning" | "critical";
export type Verdict = "healthy" | "info" | "unknown" | "warning" | "critical";
export type Scalar = string | JsonNumber | boolean | null;

export interface RunLine {
  id: string;
  name: string;
  state: string;
  reason: string;
  verdict: Verdict;
  alarms: { warning: number; critical: number };
  steps: number;
  loss: JsonNumber | null;
  spark: (JsonNumber | null)[];
  lr: JsonNumber | null;
  step_s: JsonNumber | null;
  created: number;
  updated: number;
  config: Record<string, Scalar>;
  tags: string[];
  note: string;
  problem: string | null;
}

export interface RunTable {
  runs: RunLine[];
  total: number;
  folder: string;
}

export interface Suspect {
  cause: string;
  confidence: number;
  because: string;
}

export interface Remedy {
  action: string;
  safety: "automatic" | "opt-in" | "advice";
  text: string;
}

export interface Evidence {
  tag: string;
  step: number;
  value: JsonNumber;
  expected: JsonNumber | null;
}

export interface Finding {
  id: string;
  code: string;
  name: string;
  severity: Severity;
  first_step: number;
  last_step: number;
  open: boolean;
  where: string[];
  message: string;
  evidence: Evidence[];
  causes: Suspect[];
  remedies: Remedy[];
  muted: boolean;
  tier: string;
  precision: Precision | null;
}

/** How many of a rule's alarms were right, in the trainings of Sonde's own project. */
export interface Precision {
  right: number;
  alarms: number;
}

export interface Group {
  cause: string | null;
  confidence: number;
  because: string | null;
  place: string | null;
  severity: Severity;
  first_step: number;
  open: boolean;
  /** Places in the run's list of findings, the one that tells most first. */
  findings: number[];
  others: Suspect[];
  remedies: Remedy[];
}

export interface Phase {
  phase: string;
  from: number;
  to: number;
}

export interface ModelTable {
  modules: { name: string; type: string; depth: number }[];
  parameters: { name: string; shape?: number[] }[];
}

export interface Run extends RunLine {
  environment: Record<string, unknown>;
  model: ModelTable | null;
  schedule: Phase[];
  groups: Group[];
  findings: Finding[];
  not_measured: string[];
  problems: string[];
  branches: unknown[];
  ranks: number[];
  evaluations: number[];
  num_tags: number;
  diagnosis: "recorded" | "replayed" | "working" | "none";
}

export interface Rule {
  code: string;
  name: string;
  tier: string;
  precision: Precision | null;
  page: string;
}

export interface LayerPath {
  path: string;
  layers: number;
  kind: "parameter" | "module";
}

export interface RunEvent {
  step: number;
  time: number;
  kind: string;
  data: Record<string, unknown>;
}

export type Note =
  { kind: "mute" | "unmute"; code: string; first_step: number } | { kind: "tag" | "untag" | "note"; text: string };

/** Where two runs first differ: in a value at all, and by more than rounding. */
export interface FirstDifference {
  step: number;
  tag: string;
  values: (JsonNumber | null)[];
}

export interface Divergence {
  course: string;
  values_compared: number;
  start: number | null;
  exact: FirstDifference | null;
  beyond_tolerance: FirstDifference | null;
}

export interface Against {
  label: string;
  parameters: { name: string; change: string; shapes: (number[] | null)[] }[];
  modules: { name: string; types: (string | null)[] }[];
  curves: {
    undecided: string;
    separation: { since: JsonNumber; resolution: JsonNumber; difference: JsonNumber; scatters: JsonNumber } | null;
  } | null;
  divergence: { whole: Divergence | null; layers: Divergence | null } | null;
}

/** What `sonde compare A B --json` prints, as far as the page shows it. */
export interface Comparison {
  tag: string | null;
  by: string;
  runs: { label: string; health: Record<string, JsonNumber | string | null | Record<string, unknown>> }[];
  settings: { key: string; values: unknown[]; present: boolean[] }[];
  against: Against[];
}
