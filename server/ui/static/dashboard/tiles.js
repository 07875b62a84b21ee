// The figures at the top of the dashboard.

import { Bar, h, setText } from "../lib/dom.js";
import { count, ms, percent, rate } from "../lib/format.js";
import { interToken, percentile } from "../lib/series.js";

export class Tiles {
  constructor(place) {
    this.tiles = {};
    const titles = {
      running: "Running", waiting: "Waiting", rate: "Tokens per second", first: "Time to first token",
      between: "Between tokens", cache: "KV cache", prefix: "Prompt from cache",
    };
    for (const [name, title] of Object.entries(titles)) {
      const tile = {
        value: h("span", { class: "value", text: "–" }),
        notes: [h("span"), h("span")],
        bar: ["cache", "prefix"].includes(name) ? new Bar(title) : null,
      };
      this.tiles[name] = tile;
      place.append(h("div", { class: `tile panel ${name}` }, h("h3", { text: title }), tile.value, tile.bar?.element,
        h("span", { class: "note" }, tile.notes)));
    }
    this.totals = h("dl", { class: "totals" });
    place.append(h("div", { class: "tile panel totals-tile" }, h("h3", { text: "Since the start" }), this.totals));
    this.counts = new Map();
  }

  /** `records` is null if the server keeps none. */
  draw(stats, records, tokensPerSecond) {
    const loop = stats.event_loop;
    this.#set("running", count(stats.num_running), `${count(stats.num_steps)} steps`);
    const early = stats.admission.num_waiting_jobs + stats.admission.num_running_jobs;
    this.#set("waiting", count(stats.num_waiting), early > 0 ? `${count(early)} being translated` : "in the queue");
    this.#set("rate", rate(tokensPerSecond), "over 10 seconds");
    this.#times("first", records?.map(({ ttft_ms: value }) => value));
    this.#times("between", records?.filter(({ state }) => state === "ended").map(interToken));
    const used = stats.num_blocks - stats.num_free_blocks;
    const share = stats.num_blocks > 0 ? used / stats.num_blocks : 0;
    this.#set("cache", percent(share), `${count(used)} of ${count(stats.num_blocks)} blocks`, "", share);
    const hits = stats.num_prompt_tokens > 0 ? stats.num_cached_tokens / stats.num_prompt_tokens : NaN;
    const found = `${count(stats.num_cached_tokens)} of ${count(stats.num_prompt_tokens)} tokens`;
    this.#set("prefix", percent(hits), found, "", hits || 0);
    this.#setTotals({
      "Prompt tokens": stats.num_prompt_tokens,
      "Answer tokens": stats.num_output_tokens,
      Preemptions: stats.num_preemptions,
      Refused: stats.num_refused,
      "Failed steps": stats.num_failed_steps,
      "Loop stalls": loop.num_stalls,
    });
  }

  #times(name, values) {
    const known = (values ?? []).filter(Number.isFinite);
    const [half, most, nearly] = [0.5, 0.95, 0.99].map((share) => ms(percentile(known, share)));
    if (values === undefined) this.#set(name, "–", "the server keeps no records");
    else if (known.length === 0) this.#set(name, "–", "no requests yet");
    else this.#set(name, half, `p95 ${most}`, `p99 ${nearly}`);
  }

  /** The second note stands beside the first one, or below it where there is no room. */
  #set(name, value, note, more = "", share = undefined) {
    const tile = this.tiles[name];
    setText(tile.value, value);
    setText(tile.notes[0], note);
    setText(tile.notes[1], more);
    tile.bar?.set(share);
  }

  #setTotals(totals) {
    for (const [label, value] of Object.entries(totals)) {
      if (!this.counts.has(label)) {
        const place = h("dd");
        this.counts.set(label, place);
        this.totals.append(h("div", {}, h("dt", { text: label }), place));
      }
      setText(this.counts.get(label), count(value));
    }
  }
}
