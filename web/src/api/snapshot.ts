/** Answers of a file that was written by `sonde ui RUN --export FILE.html`: there is no server to ask. */

import { readColumns, readMatrix, type Columns, type Matrix } from "./binary";
import type { LayerPath, Rule, Run, RunTable } from "./types";

interface Snapshot {
  table: RunTable;
  run: Run;
  layer_paths: { paths: LayerPath[] };
  rules: Record<string, Rule | null>;
  series: Record<string, string>;
  layers: Record<string, string>;
}

const element = typeof document === "undefined" ? null : document.getElementById("snapshot");

/** What this file holds; null where the page comes from a server. */
export const snapshot: Snapshot | null = element ? (JSON.parse(element.textContent ?? "") as Snapshot) : null;

/** The series that were kept; of others there are no points. */
export function keptSeries({ series }: Snapshot, tags: string[]): Columns[] {
  return tags.flatMap((tag) => (series[tag] ? readColumns(decoded(series[tag])) : []));
}

export function keptTags({ series }: Snapshot, pattern: string): { tags: string[]; total: number } {
  const wanted = globPattern(pattern);
  const tags = Object.keys(series)
    .filter((tag) => wanted.test(tag))
    .toSorted();
  return { tags, total: tags.length };
}

export const keptLayers = ({ layers }: Snapshot, path: string): Matrix => readMatrix(decoded(layers[path]));

/** A shell-style pattern: `*` and `?`. */
export function globPattern(pattern: string): RegExp {
  const escaped = pattern
    .replace(/[.+^${}()|[\]\\]/g, "\\$&")
    .replaceAll("*", ".*")
    .replaceAll("?", ".");
  return new RegExp(`^${escaped}$`, "s");
}

function decoded(base64: string): ArrayBuffer {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)).buffer;
}
