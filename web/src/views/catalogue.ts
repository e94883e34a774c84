/** All views of the page, a line each. */

import { Compare } from "./compare";
import { Explore } from "./explore";
import { FindingPage } from "./finding";
import { Layers } from "./layers";
import { RunPage } from "./run";
import { Runs } from "./runs";
import type { View } from "./view";

export const VIEWS: View[] = [
  { pattern: "", title: "Runs", show: Runs },
  { pattern: "run/:run", title: "Overview", isTab: true, show: RunPage },
  { pattern: "run/:run/layers", title: "Layers", isTab: true, show: Layers },
  { pattern: "run/:run/explore", title: "Explore", isTab: true, show: Explore },
  { pattern: "run/:run/finding/:finding", title: "Finding", show: FindingPage },
  { pattern: "compare", title: "Compare", show: Compare },
  { pattern: "explore", title: "Explore", show: Explore },
];
