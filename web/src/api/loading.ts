/** Loads what a view shows: the last answer stays while the next one comes. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Refusal } from "./requests";
import { useConnection } from "./live";

/** Progress is shown where something takes longer than this. */
const SLOW_MS = 300;

export interface Loaded<T> {
  value: T | null;
  refusal: Refusal | null;
  /** It has been loading for so long that people wonder. */
  slow: boolean;
  reload: () => void;
  replace: (value: T) => void;
}

/** Load when `key` changes, when asked to, and after the server was away; nothing is loaded for the key "". */
export function useLoaded<T>(key: string, load: () => Promise<T>, { keep = false } = {}): Loaded<T> {
  const [value, setValue] = useState<{ key: string; value: T } | null>(null);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const [slow, setSlow] = useState(false);
  const [asked, setAsked] = useState(0);
  const { returns } = useConnection();
  const newest = useRef(0);
  useEffect(() => {
    if (!key) return;
    const turn = ++newest.current;
    const timer = window.setTimeout(() => setSlow(true), SLOW_MS);
    const done = (): boolean => {
      if (turn !== newest.current) return false;
      clearTimeout(timer);
      setSlow(false);
      return true;
    };
    load().then(
      (loaded) => {
        if (!done()) return;
        setValue({ key, value: loaded });
        setRefusal(null);
      },
      (error: unknown) => {
        if (done())
          setRefusal(error instanceof Refusal ? error : new Refusal(-1, String(error), "Load the page again."));
      },
    );
    return () => clearTimeout(timer);
  }, [key, asked, returns]);
  const reload = useCallback(() => setAsked((count) => count + 1), []);
  const replace = useCallback((next: T) => setValue({ key, value: next }), [key]);
  const shown = value && (keep || value.key === key) ? value.value : null;
  return { value: shown, refusal, slow, reload, replace };
}
