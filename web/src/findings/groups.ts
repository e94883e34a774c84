/** A run's findings as the page tells them: causes with what they are seen by, notes, and what is muted. */

import type { Finding, Group, Run, Severity } from "../api/types";
import type { Mark } from "../charts/marks";
import { toFinding } from "../routing/navigation";

export interface Cause {
  group: Group;
  /** The one that tells most first. */
  symptoms: Finding[];
}

export interface Told {
  causes: Cause[];
  notes: Finding[];
  muted: Finding[];
}

/** Causes without those that are muted altogether; alarms that no group has stand for themselves. */
export function tell({ findings, groups }: Pick<Run, "findings" | "groups">): Told {
  const inGroups = new Set(groups.flatMap((group) => group.findings));
  const lone = findings.flatMap((finding, place) =>
    inGroups.has(place) || finding.severity === "info" ? [] : [alone(finding, place)],
  );
  const causes = [...groups, ...lone]
    .map((group) => ({
      group,
      symptoms: group.findings.map((place) => findings[place]).filter((finding) => finding && !finding.muted),
    }))
    .filter(({ symptoms }) => symptoms.some((finding) => finding.severity !== "info"));
  const told = new Set(causes.flatMap(({ symptoms }) => symptoms));
  const notes = findings.filter((finding) => !finding.muted && !told.has(finding));
  return { causes, notes, muted: findings.filter((finding) => finding.muted) };
}

/** Findings on the charts of a run. */
export function marksOf(run: string, findings: Finding[], severities: Severity[]): Mark[] {
  return findings
    .filter((finding) => !finding.muted && severities.includes(finding.severity))
    .map((finding) => ({
      x: finding.first_step,
      severity: finding.severity,
      label: `${finding.code} ${finding.name}, since step ${finding.first_step}: ${finding.message}`,
      link: toFinding(run, finding.id),
    }));
}

/** "0.weight (+3)": where a finding is, in the room of a word. */
export function wherePhrase(where: string[]): string {
  return where.length > 1 ? `${where[0]} (+${where.length - 1})` : (where[0] ?? "");
}

export function stepsPhrase({
  first_step,
  last_step,
  open,
}: Pick<Finding, "first_step" | "last_step" | "open">): string {
  const steps = first_step === last_step ? `step ${first_step}` : `steps ${first_step}–${last_step}`;
  return open ? `since step ${first_step}` : `${steps}, over`;
}

function alone(finding: Finding, place: number): Group {
  const { severity, first_step, open, causes, remedies, where } = finding;
  return {
    cause: null,
    confidence: 0,
    because: null,
    place: where[0] ?? null,
    severity,
    first_step,
    open,
    findings: [place],
    others: causes,
    remedies,
  };
}
