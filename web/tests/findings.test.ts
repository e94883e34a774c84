import { expect, test } from "vitest";
import type { Finding, Group } from "../src/api/types";
import { marksOf, stepsPhrase, tell, wherePhrase } from "../src/findings/groups";

const finding = (code: string, severity: Finding["severity"], more: Partial<Finding> = {}): Finding => ({
  id: `${code}@7`,
  code,
  name: "a-name",
  severity,
  first_step: 7,
  last_step: 9,
  open: true,
  where: [],
  message: "what happened",
  evidence: [],
  causes: [],
  remedies: [],
  muted: false,
  tier: "stable",
  precision: null,
  ...more,
});

const group = (cause: string | null, findings: number[]): Group => ({
  cause,
  confidence: 0.9,
  because: null,
  place: null,
  severity: "warning",
  first_step: 7,
  open: true,
  findings,
  others: [],
  remedies: [],
});

test("what is in no group and no alarm is a note", () => {
  const findings = [finding("AAA001", "warning"), finding("AAA002", "info"), finding("AAA003", "info")];
  const { causes, notes, muted } = tell({ findings, groups: [group("lr-too-high", [0, 2])] });
  expect(causes.map(({ symptoms }) => symptoms.map(({ code }) => code))).toEqual([["AAA001", "AAA003"]]);
  expect(notes.map(({ code }) => code)).toEqual(["AAA002"]);
  expect(muted).toEqual([]);
});

test("a cause of which all alarms are muted is told no more, and its information becomes notes", () => {
  const findings = [finding("AAA001", "warning", { muted: true }), finding("AAA002", "info")];
  const { causes, notes, muted } = tell({ findings, groups: [group("lr-too-high", [0, 1])] });
  expect(causes).toEqual([]);
  expect(notes.map(({ code }) => code)).toEqual(["AAA002"]);
  expect(muted.map(({ code }) => code)).toEqual(["AAA001"]);
});

test("an alarm that no group has stands for itself", () => {
  const { causes } = tell({ findings: [finding("AAA001", "critical", { where: ["head"] })], groups: [] });
  expect(causes[0].group).toMatchObject({ cause: null, severity: "critical", place: "head", findings: [0] });
});

test("marks are made of what is not muted", () => {
  const findings = [
    finding("AAA001", "warning"),
    finding("AAA002", "info"),
    finding("AAA003", "warning", { muted: true }),
  ];
  const marks = marksOf("a/b", findings, ["warning", "critical"]);
  expect(marks).toHaveLength(1);
  expect(marks[0]).toMatchObject({ x: 7, link: "#/run/a%2Fb/finding/AAA001%407" });
});

test("places and steps in few words", () => {
  expect([wherePhrase([]), wherePhrase(["a"]), wherePhrase(["a", "b", "c"])]).toEqual(["", "a", "a (+2)"]);
  expect(stepsPhrase({ first_step: 3, last_step: 9, open: true })).toBe("since step 3");
  expect(stepsPhrase({ first_step: 3, last_step: 9, open: false })).toBe("steps 3–9, over");
  expect(stepsPhrase({ first_step: 3, last_step: 3, open: false })).toBe("step 3, over");
});
