// One request's record, in a dialog.

import { Bar, announce, byId, h } from "../lib/dom.js";
import { getJson } from "../lib/api.js";
import { clock, count, ms, percent } from "../lib/format.js";
import { indented } from "../lib/examples.js";
import { codeBlock } from "../lib/markdown_view.js";
import { stateOf } from "./request_table.js";

const NAMES = {
  upload: "upload", waiting: "waiting for a turn", worker: "translation", queue: "queue", prefill: "prompt",
  decode: "tokens", delivery: "delivery", other: "not attributed",
};

const MISSES = {
  never_seen: "never seen before", evicted: "was there and gave way", last_block: "the last block is always computed",
  window: "sliding window", prompt_logprobs: "log-probabilities of the prompt", disabled: "there is no prefix cache",
};

const IDS = new Set(["Response id", "Request id"]);

export class RecordDialog {
  constructor() {
    this.dialog = byId("record-dialog");
    byId("record-close").addEventListener("click", () => this.dialog.close());
  }

  async open(id) {
    this.dialog.querySelector("h2").textContent = "Request";
    byId("record").replaceChildren(h("p", { class: "hint", text: "Loading the record" }));
    if (!this.dialog.open) this.dialog.showModal();
    try {
      this.#show(await getJson(`requests/${encodeURIComponent(id)}`));
    } catch (error) {
      const text = error.status === 404 ? "The server has no record of this request." : error.message;
      byId("record").replaceChildren(h("p", { class: "problem boxed", text }));
      announce(text);
    }
  }

  #show(record) {
    this.dialog.querySelector("h2").textContent = record.route;
    const { text, kind } = stateOf(record);
    const state = h("p", {}, h("span", { class: `badge ${kind}`, text }));
    byId("record").replaceChildren(...[
      state,
      record.error ? h("p", { class: "problem boxed", text: record.error }) : null,
      facts(record),
      times(record),
      record.prompt ? textOf("Prompt", record.prompt) : null,
      record.text ? textOf("Answer", record.text) : null,
      h("h3", { text: "Parameters" }),
      codeBlock(indented(record.parameters ?? {}), "json"),
    ].filter(Boolean));
  }
}

function facts(record) {
  const miss = record.cache_miss;
  const cached = record.prompt_tokens > 0 ? ` (${percent(record.cached_tokens / record.prompt_tokens)})` : "";
  const rows = [
    ["Response id", record.id],
    ["Request id", record.request_id],
    ["Key", record.key],
    ["Model", record.model],
    ["Started", record.started_at ? clock(record.started_at) : null],
    ["Status", record.status],
    ["Ended by", record.ended_by],
    ["Prompt", `${count(record.prompt_tokens)} tokens`],
    ["From the cache", `${count(record.cached_tokens)} tokens${cached}`],
    ["Not from the cache", miss ? `${MISSES[miss.reason] ?? miss.reason}, from block ${miss.first_differing_block}` : null],
    ["Answer", `${count(record.completion_tokens)} tokens`],
    ["First token", ms(record.ttft_ms ?? NaN)],
    ["Duration", ms(record.duration_ms ?? NaN)],
    ["Steps", count(record.num_steps)],
    ["Batch", record.mean_batch === null || record.mean_batch === undefined
      ? null : `${record.mean_batch.toFixed(1)} on average, ${count(record.max_batch)} at most`],
    ["Preemptions", count(record.num_preemptions)],
  ].filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, rows.map(([name, value]) =>
    h("div", { class: IDS.has(name) ? "id" : null }, h("dt", { text: name }), h("dd", { text: String(value) }))));
}

function times(record) {
  const rows = Object.entries(record.times_ms ?? {}).filter(([, value]) => Number.isFinite(value));
  if (rows.length === 0) return null;
  const total = rows.reduce((sum, [, value]) => sum + value, 0);
  const body = rows.map(([name, value]) =>
    h("tr", {},
      h("th", { scope: "row", text: NAMES[name] ?? name }),
      h("td", {}, new Bar().set(total > 0 ? value / total : 0).element),
      h("td", { class: "number", text: ms(value) }),
      h("td", { class: "number muted", text: percent(total > 0 ? value / total : 0) })));
  return h("table", { class: "times" }, h("caption", { text: "Where the time went" }), h("tbody", {}, body));
}

function textOf(title, text) {
  return h("div", {}, h("h3", { text: title }), codeBlock(text));
}
