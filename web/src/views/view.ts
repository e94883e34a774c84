/** What a view is to the rest of the page. */

import type { JSX } from "preact";

export interface ViewProps {
  /** The named parts of the place, such as the run. */
  parts: Record<string, string>;
  query: URLSearchParams;
}

export interface View {
  /** Its place, such as "run/:run/layers". */
  pattern: string;
  title: string;
  /** Whether it is one of the tabs of a run. */
  isTab?: boolean;
  show: (props: ViewProps) => JSX.Element;
}
