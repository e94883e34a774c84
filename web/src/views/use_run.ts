/** A run that is kept up to date while it is looked at. */

import { useEffect, useRef, useState } from "preact/hooks";
import { listen, type StepNews } from "../api/live";
import { useLoaded, type Loaded } from "../api/loading";
import { run as load } from "../api/requests";
import type { Run } from "../api/types";

/** Findings come in flocks: the run is asked for once they have settled. */
const SETTLE_MS = 400;
/** A run that is being judged is asked for again after this. */
const JUDGING_MS = 2000;

export interface WatchedRun extends Loaded<Run> {
  newest: StepNews | null;
  isGone: boolean;
}

export function useRun(id: string): WatchedRun {
  const loaded = useLoaded(`run ${id}`, () => load(id));
  const [newest, setNewest] = useState<StepNews | null>(null);
  const [isGone, setGone] = useState(false);
  const timer = useRef(0);
  const reloadSoon = (delay = SETTLE_MS): void => {
    clearTimeout(timer.current);
    timer.current = window.setTimeout(loaded.reload, delay);
  };
  useEffect(() => {
    setNewest(null);
    setGone(false);
    const stop = listen([id], {
      step: setNewest,
      finding: () => reloadSoon(),
      state: () => reloadSoon(),
      gone: () => setGone(true),
    });
    return () => {
      clearTimeout(timer.current);
      stop();
    };
  }, [id]);
  useEffect(() => {
    if (loaded.value?.diagnosis === "working") reloadSoon(JUDGING_MS);
  }, [loaded.value]);
  return { ...loaded, newest, isGone: isGone || (loaded.refusal?.status === 404 && loaded.value !== null) };
}
