/** Verdicts and severities: a shape, a colour and a word, so that none of them is needed alone. */

import type { JSX } from "preact";
import type { Severity, Verdict } from "../api/types";

const WORDS: Record<Verdict, string> = {
  healthy: "healthy",
  info: "healthy, with notes",
  unknown: "not enough to judge",
  warning: "warning",
  critical: "critical",
};

export const verdictWord = (verdict: Verdict): string => WORDS[verdict] ?? verdict;

export function Sign({ of }: { of: Verdict | Severity }): JSX.Element {
  return (
    <svg class={`sign ${of}`} viewBox="0 0 12 12" aria-hidden="true">
      {of === "critical" && <path d="M3.8 1h4.4L11 3.8v4.4L8.2 11H3.8L1 8.2V3.8zM4.3 4.3l3.4 3.4m0-3.4L4.3 7.7" />}
      {of === "warning" && <path d="M6 1l5.2 9.6H.8zM6 4.4v3m0 1.3v.5" />}
      {of === "info" && <path d="M6 1a5 5 0 1 1 0 10A5 5 0 0 1 6 1zm0 4.4v3M6 3.2v.5" />}
      {of === "healthy" && <path d="M6 1a5 5 0 1 1 0 10A5 5 0 0 1 6 1zM3.6 6.1l1.8 1.8 3-3.6" />}
      {of === "unknown" && (
        <path d="M6 1a5 5 0 1 1 0 10A5 5 0 0 1 6 1zM4.5 4.8c0-2 3-2 3 0 0 1.2-1.5 1.2-1.5 2.2m0 1.5v.4" />
      )}
    </svg>
  );
}

export function VerdictMark({ verdict, short = false }: { verdict: Verdict; short?: boolean }): JSX.Element {
  const word = verdictWord(verdict);
  return (
    <span class={`verdict-mark ${verdict}`} title={word}>
      <Sign of={verdict === "info" ? "healthy" : verdict} />
      {short ? (verdict === "info" ? "healthy" : verdict === "unknown" ? "too little" : word) : word}
    </span>
  );
}
