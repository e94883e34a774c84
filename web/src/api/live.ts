/** News from the server, and whether it is there: one stream for a view, opened again after it was lost. */

import { useEffect, useState } from "preact/hooks";
import { snapshot } from "./snapshot";
import type { Finding, JsonNumber, RunLine, Verdict } from "./types";

export interface StepNews {
  run: string;
  step: number;
  time: number;
  last: Record<string, JsonNumber | null>;
}

export interface News {
  step?: (news: StepNews) => void;
  finding?: (finding: Finding) => void;
  state?: (news: { run: string; state: string; verdict: Verdict }) => void;
  gone?: (news: { run: string }) => void;
  runs?: (news: { changed: RunLine[]; gone: string[] }) => void;
}

/** "lost" from the moment on at which the stream breaks; "none" where a view listens to nothing. */
export type Connection = "none" | "open" | "lost";

const RETRY_MS = 1500;

let connection: Connection = "none";
let returns = 0;
const watchers = new Set<() => void>();

/** Listen until the returned function is called. */
export function listen(runs: string[], news: News): () => void {
  if (snapshot) return () => undefined;
  const query = new URLSearchParams(runs.map((run) => ["run", run]));
  let source: EventSource | null = null;
  let timer = 0;
  let wasLost = false;
  const open = (): void => {
    source = new EventSource(`api/live${query.size ? `?${query}` : ""}`);
    source.onopen = () => {
      tell("open", wasLost);
      wasLost = false;
    };
    source.onerror = () => {
      wasLost = true;
      tell("lost", false);
      if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      clearTimeout(timer);
      timer = window.setTimeout(open, RETRY_MS);
    };
    for (const [kind, hear] of Object.entries(news))
      source.addEventListener(kind, (event) => hear(JSON.parse((event as MessageEvent<string>).data)));
  };
  open();
  return () => {
    clearTimeout(timer);
    source?.close();
    tell("none", false);
  };
}

/** The state of the connection, and how often the server has come back: what was loaded before may be old. */
export function useConnection(): { connection: Connection; returns: number } {
  const [, redraw] = useState(0);
  useEffect(() => {
    const watcher = (): void => redraw((count) => count + 1);
    watchers.add(watcher);
    return () => void watchers.delete(watcher);
  }, []);
  return { connection, returns };
}

function tell(state: Connection, isBack: boolean): void {
  connection = state;
  if (isBack) returns += 1;
  watchers.forEach((watcher) => watcher());
}
