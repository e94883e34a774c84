/** Requests to the server. What goes wrong is told as a `Refusal`, which says what to do. */

import { keptLayers, keptSeries, keptTags, snapshot } from "./snapshot";
import { readColumns, readMatrix, type Columns, type Matrix } from "./binary";
import type { Comparison, LayerPath, Note, Rule, Run, RunEvent, RunTable } from "./types";

export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly what: string,
    readonly remedy: string,
  ) {
    super(what);
  }
}

export type Query = Record<string, string | number | string[] | undefined>;

/** The most runs that the server tells of at once. */
const MOST_RUNS = 5000;

export async function runs(): Promise<RunTable> {
  if (snapshot) return snapshot.table;
  const table = await json<RunTable>("runs", { limit: MOST_RUNS });
  while (table.runs.length < table.total) {
    const more = await json<RunTable>("runs", { limit: MOST_RUNS, offset: table.runs.length });
    if (!more.runs.length) break;
    table.runs.push(...more.runs);
  }
  return table;
}

export async function run(id: string): Promise<Run> {
  if (snapshot && snapshot.run.id === id) return snapshot.run;
  return json(runPath(id));
}

export async function rule(code: string): Promise<Rule> {
  return snapshot?.rules[code] ?? json(`rules/${encodeURIComponent(code)}`);
}

export const layerPaths = async (id: string): Promise<{ paths: LayerPath[] }> =>
  snapshot?.layer_paths ?? json(`${runPath(id)}/layer-paths`);

export const histogramTags = async (id: string): Promise<{ tags: string[] }> =>
  snapshot ? { tags: [] } : json(`${runPath(id)}/histogram-tags`);

export const comparison = (ids: string[]): Promise<Comparison> => json("compare", { run: ids });

export const tags = async (id: string, pattern: string, limit = 2000): Promise<{ tags: string[]; total: number }> =>
  snapshot ? keptTags(snapshot, pattern) : json(`${runPath(id)}/tags`, { pattern, limit });

export const events = (id: string, kind: string): Promise<{ events: RunEvent[] }> =>
  json(`${runPath(id)}/events`, { kind, limit: 500 });

export interface SeriesQuery {
  tags: string[];
  from?: number | undefined;
  to?: number | undefined;
  points?: number;
  by?: "step" | "time";
}

export async function series(id: string, query: SeriesQuery): Promise<Columns[]> {
  const { tags: tag, from, to, points = 1000, by = "step" } = query;
  if (snapshot) return keptSeries(snapshot, tag);
  return readColumns(
    await binary(`${runPath(id)}/series`, { tag, from: whole(from, Math.floor), to: whole(to, Math.ceil), points, by }),
  );
}

export async function layers(id: string, path: string, from?: number, to?: number): Promise<Matrix> {
  if (snapshot) return keptLayers(snapshot, path);
  const query = { path, from: whole(from, Math.floor), to: whole(to, Math.ceil), columns: 400, by: "depth" };
  return readMatrix(await binary(`${runPath(id)}/layers`, query));
}

export async function histograms(id: string, tag: string, from?: number, to?: number): Promise<Matrix> {
  const query = { tag, from: whole(from, Math.floor), to: whole(to, Math.ceil), rows: 120 };
  return readMatrix(await binary(`${runPath(id)}/histograms`, query));
}

export async function addNote(id: string, note: Note): Promise<void> {
  const body = JSON.stringify(note);
  await ask(`${runPath(id)}/notes`, {}, { method: "POST", headers: { "Content-Type": "application/json" }, body });
}

export function address(path: string, query: Query = {}): string {
  const written = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    for (const item of Array.isArray(value) ? value : value === undefined ? [] : [value])
      written.append(name, String(item));
  return `api/${path}${written.size ? `?${written}` : ""}`;
}

const runPath = (id: string): string => `runs/${encodeURIComponent(id)}`;

const whole = (step: number | undefined, round: (x: number) => number): number | undefined =>
  step === undefined ? undefined : Math.max(0, round(step));

async function json<T>(path: string, query: Query = {}): Promise<T> {
  return (await ask(path, query)).json() as Promise<T>;
}

async function binary(path: string, query: Query): Promise<ArrayBuffer> {
  return (await ask(path, query)).arrayBuffer();
}

async function ask(path: string, query: Query, init: RequestInit = {}): Promise<Response> {
  if (snapshot)
    throw new Refusal(
      0,
      "This file is a snapshot of one run: it does not hold this.",
      "Open the run itself with `sonde ui`.",
    );
  let response: Response;
  try {
    response = await fetch(address(path, query), init);
  } catch {
    throw new Refusal(0, "The server does not answer.", "Start it again with `sonde ui`; this page goes on by itself.");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response: Response): Promise<Refusal> {
  const said = (await response.json().catch(() => ({}))) as {
    error?: { what?: string; allowed?: string; do?: string };
  };
  const error = said.error ?? {};
  const what = error.what ?? `The server answered with status ${response.status}.`;
  const remedy = [error.allowed, error.do].filter(Boolean).join(" ");
  return new Refusal(response.status, what, remedy || usualRemedy(response.status));
}

function usualRemedy(status: number): string {
  if (status === 401) return "Open the address that `sonde ui` printed: it carries the token.";
  if (status === 404) return "It may have been moved or deleted.";
  return "Load the page again; if that does not help, look at what `sonde ui` printed.";
}
