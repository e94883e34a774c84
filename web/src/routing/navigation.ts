/** Where the page is, and going elsewhere. */

import { useEffect, useState } from "preact/hooks";
import { changed, readFragment, writeFragment, type Change, type Place } from "./places";

const MOVED = "sonde-moved";

export function usePlace(): Place {
  const [fragment, setFragment] = useState(location.hash);
  useEffect(() => {
    const moved = (): void => setFragment(location.hash);
    addEventListener("hashchange", moved);
    addEventListener(MOVED, moved);
    return () => {
      removeEventListener("hashchange", moved);
      removeEventListener(MOVED, moved);
    };
  }, []);
  return readFragment(fragment);
}

/** Go to another view. */
export function go(fragment: string): void {
  location.hash = fragment;
}

/** Change the query of this place, without a new entry in the browser's history. */
export function setQuery(change: Change): void {
  const { path, query } = readFragment(location.hash);
  history.replaceState(null, "", writeFragment(path, changed(query, change)));
  dispatchEvent(new Event(MOVED));
}

export const toRuns = (): string => writeFragment([]);
export const toRun = (run: string, query: Change = {}): string => writeFragment(["run", run], query);
export const toLayers = (run: string, query: Change = {}): string => writeFragment(["run", run, "layers"], query);
export const toFinding = (run: string, finding: string): string => writeFragment(["run", run, "finding", finding]);
export const toCompare = (runs: string[]): string => writeFragment(["compare"], { run: runs });
export const toExplore = (run: string, tags: string[]): string => writeFragment(["explore"], { run, tag: tags });
