// The requests, newest first, each with its bar in a timeline. Rows keep their nodes and focus.

import { byId, h, setAttr, setText, svg } from "../lib/dom.js";
import { clock, count, ms } from "../lib/format.js";
import { PARTS, elapsed, partsOf } from "../lib/series.js";

const WIDTH = 1000;
const LABELS = { waiting: "waiting", prefill: "prompt", decode: "tokens", rest: "other" };

export class RequestTable {
  constructor(openRecord) {
    this.openRecord = openRecord;
    this.rows = new Map();
    this.body = byId("request-rows");
    byId("timeline-legend").append(...PARTS.map((part) =>
      h("span", { class: "entry" }, h("span", { class: `swatch ${part}`, "aria-hidden": "true" }), LABELS[part])));
  }

  /** `now` in Unix seconds by the server's clock as far as records show it. */
  draw(records, now, span) {
    byId("requests").hidden = records.length === 0;
    byId("no-requests").hidden = records.length > 0;
    const kept = new Set(records.map(idOf));
    for (const [id, row] of this.rows) {
      if (kept.has(id)) continue;
      row.element.remove();
      this.rows.delete(id);
    }
    records.forEach((record, index) => {
      const row = this.#rowOf(record);
      const inPlace = this.body.children[index];
      if (inPlace !== row.element) this.body.insertBefore(row.element, inPlace ?? null);
      row.draw(record, now, span);
    });
  }

  #rowOf(record) {
    const id = idOf(record);
    if (!this.rows.has(id)) this.rows.set(id, new Row(() => this.openRecord(id)));
    return this.rows.get(id);
  }
}

/** Records of requests that were refused early may have no response id. */
function idOf(record) {
  return record.id || record.request_id;
}

class Row {
  constructor(open) {
    this.button = h("button", { type: "button", class: "link", on: { click: open } });
    this.when = h("span", { class: "muted small" });
    this.cells = Object.fromEntries(["state", "prompt", "answer", "first", "duration"].map((name) => [name, h("span")]));
    this.bars = PARTS.map((part) => svg("rect", { class: part, y: 0, height: 10 }));
    this.bar = svg("svg", { viewBox: `0 0 ${WIDTH} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.bars);
    const cell = (name, label) => h("td", { class: "number", "data-label": label }, this.cells[name]);
    this.element = h("tr", {},
      h("th", { scope: "row" }, this.button, this.when),
      h("td", { "data-label": "State" }, this.cells.state),
      cell("prompt", "Prompt"), cell("answer", "Answer"), cell("first", "First token"), cell("duration", "Duration"),
      h("td", { class: "time" }, this.bar));
  }

  draw(record, now, span) {
    setText(this.button, record.route);
    setText(this.when, `${clock(record.started_at)}${record.key ? ` · ${record.key}` : ""}`);
    const { text, kind } = stateOf(record);
    setText(this.cells.state, text);
    setAttr(this.cells.state, "class", `badge ${kind}`);
    setText(this.cells.prompt, count(record.prompt_tokens));
    setText(this.cells.answer, count(record.completion_tokens));
    setText(this.cells.first, ms(record.ttft_ms ?? NaN));
    setText(this.cells.duration, ms(elapsed(record, now)));
    this.#drawBar(record, now, span);
  }

  #drawBar(record, now, span) {
    const place = (seconds) => WIDTH * Math.min(1, Math.max(0, 1 - (now - seconds) / span));
    const parts = partsOf(record, now);
    let begin = record.started_at;
    PARTS.forEach((part, index) => {
      const end = begin + parts[part] / 1000;
      const isThere = parts[part] > 0 && end > now - span;
      setAttr(this.bars[index], "x", place(begin).toFixed(1));
      setAttr(this.bars[index], "width", isThere ? Math.max(3, place(end) - place(begin)).toFixed(1) : 0);
      begin = end;
    });
  }
}

/** What a record's state is called, and its kind of badge. */
export function stateOf(record) {
  if (record.state === "running") {
    return record.ttft_ms === null ? { text: "waiting", kind: "wait" } : { text: "running", kind: "run" };
  }
  if (record.error || record.status >= 400) {
    const isClient = record.ended_by === "client";
    return { text: isClient ? "client left" : `error ${record.status ?? ""}`.trim(), kind: isClient ? "wait" : "bad" };
  }
  if (record.ended_by === "client") return { text: "client left", kind: "wait" };
  return { text: record.finish_reasons?.[0] ?? "done", kind: "good" };
}
