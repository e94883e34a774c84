/** Series of a run as a view needs them: all of it coarsely, the part that is looked at finely, and what comes in live. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useLoaded } from "../api/loading";
import { series as load, type Refusal } from "../api/requests";
import { append, NO_POINTS, splice, type Points } from "./points";
import type { Range } from "./ranges";

export type SeriesMap = ReadonlyMap<string, Points>;

const POINTS = 1000;
/** A zoom is loaded once the hand rests. */
const REST_MS = 150;
/** Slow tables come in later than quick ones: so many steps are asked for again. */
const OVERLAP_STEPS = 200;
/** A step may be told of before its values can be read: they are asked for again, so often. */
const MOST_VAIN = 5;
const VAIN_MS = 500;
/** Coarse points are asked for anew where so many came in one by one. */
const MOST_POINTS = 4000;

export interface UsedSeries {
  series: SeriesMap;
  refusal: Refusal | null;
  slow: boolean;
  /** Whether the first answer has come. */
  ready: boolean;
}

/** `newest` is the last step that is known of; where it grows, what is new is loaded. */
export function useSeries(run: string, tags: string[], range: Range | null, newest: number): UsedSeries {
  const names = tags.join("\n");
  const key = tags.length ? `${run}\n${names}` : "";
  const overview = useLoaded(key, () => mapped(run, tags));
  const rested = useRested(range);
  const detailKey = rested && key ? `${key}\n${rested.from} ${rested.to}` : "";
  const detail = useLoaded(detailKey, () => mapped(run, tags, rested), { keep: true });
  useTail(run, tags, newest, overview.value, overview.replace, overview.reload);
  const isDetailed = rested !== null && detail.value !== null;
  const series = useMemo(() => {
    const coarse = overview.value ?? new Map<string, Points>();
    if (!isDetailed || !detail.value) return coarse;
    const fine = detail.value;
    return new Map([...coarse].map(([tag, points]) => [tag, splice(points, fine.get(tag) ?? NO_POINTS)]));
  }, [overview.value, detail.value, isDetailed]);
  return { series, refusal: overview.refusal, slow: overview.slow, ready: overview.value !== null };
}

function useTail(
  run: string,
  tags: string[],
  newest: number,
  known: SeriesMap | null,
  replace: (map: SeriesMap) => void,
  reload: () => void,
): void {
  const isBusy = useRef(false);
  const vain = useRef(0);
  const [turn, setTurn] = useState(0);
  const current = useRef({ known, replace, run });
  current.current = { known, replace, run };
  useEffect(() => {
    if (!known || isBusy.current) return;
    const last = Math.max(-1, ...[...known.values()].map((points) => points.x.at(-1) ?? -1));
    if (newest <= last) return;
    if (Math.max(0, ...[...known.values()].map((points) => points.x.length)) > MOST_POINTS) return reload();
    isBusy.current = true;
    load(run, { tags, from: Math.max(0, last - OVERLAP_STEPS), points: POINTS })
      .then((columns) => {
        isBusy.current = false;
        const before = current.current.known;
        if (!before || current.current.run !== run) return;
        const more = new Map(columns.map((column) => [column.tag, column]));
        const grown = new Map([...before].map(([tag, points]) => [tag, append(points, more.get(tag) ?? NO_POINTS)]));
        if ([...grown].some(([tag, points]) => points !== before.get(tag))) {
          vain.current = 0;
          current.current.replace(grown);
        } else if (vain.current++ < MOST_VAIN) setTimeout(() => setTurn((turn) => turn + 1), VAIN_MS);
      })
      .catch(() => (isBusy.current = false)); // the stream tells that the server is away
  }, [newest, known, turn]); // what came while this was busy is loaded once that is there
}

function useRested(range: Range | null): Range | null {
  const [rested, setRested] = useState(range);
  useEffect(() => {
    const timer = setTimeout(() => setRested(range), range ? REST_MS : 0);
    return () => clearTimeout(timer);
  }, [range?.from, range?.to]);
  return range && rested;
}

async function mapped(run: string, tags: string[], range: Range | null = null): Promise<SeriesMap> {
  const columns = await load(run, { tags, from: range?.from, to: range?.to, points: POINTS });
  return new Map(columns.map((column) => [column.tag, column]));
}
