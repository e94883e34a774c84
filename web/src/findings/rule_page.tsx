/** The manual page of a finding's rule, with how often the rule is right. */

import type { JSX } from "preact";
import { useLoaded } from "../api/loading";
import { rule as loadRule } from "../api/requests";
import type { Finding, Precision } from "../api/types";
import { Markdown } from "../markdown/markdown";
import { Progress } from "../parts/notices";
import { percent } from "../words/quantities";

export function RulePage({ finding }: { finding: Finding }): JSX.Element | null {
  const { value: rule, slow } = useLoaded(`rule ${finding.code}`, () => loadRule(finding.code));
  if (!rule) return slow ? <Progress slow of="the manual page" /> : null;
  return (
    <section class="rule-page" aria-label={`Manual page of ${rule.code}`}>
      <h2>
        The rule <span class="code">{rule.code}</span>
      </h2>
      <p class="remark">
        {rule.tier === "preview" ? "A preview rule: it only informs. " : ""}
        {precisionPhrase(rule.precision)}
      </p>
      <Markdown text={withoutTitle(rule.page)} />
    </section>
  );
}

/** The page begins with the rule's code and name, which stand above it already. */
const withoutTitle = (page: string): string => page.replace(/^\s*#{1,3} .*\n/, "");

function precisionPhrase(precision: Precision | null): string {
  if (!precision) return "How often its alarms are right was not measured.";
  const { right, alarms } = precision;
  return `${right} of its ${alarms} alarms were right (${percent(right / alarms)}) in the trainings of Sonde's own project.`;
}
