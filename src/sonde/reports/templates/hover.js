// Shows the values of a chart at the step under the pointer. They are read from the curves as drawn.
"use strict";
const written = (value) => Math.abs(value) >= 1000 && Math.abs(value) < 1e9
  ? Math.round(Number(value.toPrecision(3))).toLocaleString("en")
  : String(Number(value.toPrecision(3)));
for (const svg of document.querySelectorAll("svg[data-plot]")) {
  const [left, right, top, bottom, first, last, low, high, isLog] = svg.dataset.plot.split(" ").map(Number);
  const curves = [...svg.querySelectorAll("path[data-label]")].map((path) => ({
    path,
    points: [...path.getAttribute("d").matchAll(/(-?[\d.]+) (-?[\d.]+)/g)].map((found) => [Number(found[1]), Number(found[2])]),
  }));
  const stepAt = (x) => first + (last - first) * (x - left) / (right - left);
  const valueAt = (y) => {
    const share = (bottom - y) / (bottom - top);
    if (isLog) return low * (high / low) ** share;
    const finest = 10 ** Math.floor(Math.log10((high - low) / 1e4)); // places are rounded
    return Math.round((low + (high - low) * share) / finest) * finest;
  };
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  svg.after(tip);
  const rule = document.createElementNS("http://www.w3.org/2000/svg", "path");
  rule.setAttribute("class", "stroke-soft");
  svg.append(rule);
  const hide = () => { tip.hidden = true; rule.removeAttribute("d"); };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    if (x < left || x > right) return hide();
    const step = stepAt(x);
    tip.replaceChildren(Math.abs(last - first) > 100 ? Math.round(step).toLocaleString("en") : written(step));
    for (const { path, points } of curves) {
      const near = points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
      if (Math.abs(near[0] - x) > Math.max(8, (right - left) / points.length)) continue;
      const said = document.createElement("div");
      said.style.borderLeft = `8px solid ${getComputedStyle(path).stroke}`;
      said.textContent = `${path.dataset.label} ${written(valueAt(near[1]))}`;
      tip.append(said);
    }
    tip.hidden = false;
    tip.style.left = `${Math.min(event.clientX - box.left + 14, box.width - tip.offsetWidth)}px`;
    rule.setAttribute("d", `M${x.toFixed(1)} ${top}V${bottom}`);
  });
}
