// A chart of the last minutes: one line or area for each series.

import { h, setAttr, setText, svg } from "../lib/dom.js";

const WIDTH = 600;
const HEIGHT = 120;

/** `series` are names of samples' fields with titles. `title` names the chart. */
export class Chart {
  constructor({ title, series, seconds, format }) {
    Object.assign(this, { title, series, seconds, format });
    this.paths = series.map(({ name }) => ({
      area: svg("path", { class: `area ${name}` }),
      line: svg("path", { class: `line ${name}` }),
    }));
    this.picture = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
      [0, 0.5, 1].map((share) => svg("path", { class: "grid", d: `M0 ${y(share, 1)}H${WIDTH}` })),
      this.paths.flatMap(({ area, line }) => [area, line]),
    );
    this.top = h("span", { class: "axis scale" });
    const legend = series.map(({ name, label }) =>
      h("span", { class: "entry" }, h("span", { class: `swatch ${name}`, "aria-hidden": "true" }), label));
    this.element = h("figure", { class: "chart panel" },
      h("figcaption", {}, h("h3", { text: title }), h("span", { class: "legend" }, series.length > 1 ? legend : [])),
      h("div", { class: "plot" }, this.top, this.picture),
      h("div", { class: "axis foot" }, h("span", { text: `${seconds / 60} min ago` }), h("span", { text: "now" })));
  }

  /** Draw samples, oldest first. Those of NaN are left out. */
  draw(samples) {
    const last = samples.at(-1);
    const values = samples.flatMap((sample) => this.series.map(({ name }) => sample[name]));
    const highest = Math.max(0, ...values.filter(Number.isFinite));
    const scale = niceAbove(highest);
    setText(this.top, this.format(scale));
    this.series.forEach(({ name }, index) => {
      const points = samples.filter((sample) => Number.isFinite(sample[name])).map((sample) => [
        WIDTH * (1 - (last.at - sample.at) / this.seconds), y(sample[name], scale),
      ]);
      if (points.length === 0) return;
      const line = points.map(([left, top]) => `${left.toFixed(1)} ${top.toFixed(1)}`).join("L");
      setAttr(this.paths[index].line, "d", `M${line}`);
      setAttr(this.paths[index].area, "d", `M${line}L${WIDTH} ${HEIGHT}L${points[0][0].toFixed(1)} ${HEIGHT}Z`);
    });
    const now = this.series.map(({ name, label }) => `${label} ${this.format(last[name])}`).join(", ");
    setAttr(this.picture, "aria-label", `${this.title}. Now: ${now}. Highest: ${this.format(highest)}.`);
  }
}

function y(value, scale) {
  return HEIGHT - 2 - (HEIGHT - 4) * (value / scale);
}

/** The next of 1, 2, 5, 10, 20, 50, ... at least 4. */
function niceAbove(value) {
  for (let power = 1; ; power *= 10) {
    for (const digit of [1, 2, 4, 5]) if (digit * power >= Math.max(value, 4)) return digit * power;
  }
}
