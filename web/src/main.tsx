import "uplot/dist/uPlot.min.css";
import "./styles/colours.css";
import "./styles/page.css";
import "./styles/tables.css";
import "./styles/charts.css";
import "./styles/findings.css";
import "./styles/views.css";
import { render } from "preact";
import { snapshot } from "./api/snapshot";
import { toRun } from "./routing/navigation";
import { Shell } from "./shell";
import { show } from "./theming/theme";

if (snapshot && !location.hash) location.hash = toRun(snapshot.run.id);
show();
const place = document.getElementById("page");
if (place) render(<Shell />, place);
