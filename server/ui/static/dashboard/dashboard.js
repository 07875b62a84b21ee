// The dashboard: asks for /stats and /requests while it is seen, and draws them.

import { byId, setText } from "../lib/dom.js";
import { ApiError, getJson } from "../lib/api.js";
import { clock, count, rate } from "../lib/format.js";
import { Window, growth } from "../lib/series.js";
import { Chart } from "./chart.js";
import { RequestTable } from "./request_table.js";
import { Tiles } from "./tiles.js";

const PERIOD_MS = 2000;
const SECONDS = 300;
const RATE_SECONDS = 10;
const NUM_RECORDS = 100;

export class Dashboard {
  constructor({ openRecord, onUnreachable }) {
    this.onUnreachable = onUnreachable;
    this.isShown = false;
    this.isPaused = false;
    this.isAsking = false;
    this.timer = 0;
    this.window = new Window(SECONDS);
    this.tiles = new Tiles(byId("tiles"));
    this.table = new RequestTable(openRecord);
    this.charts = [
      new Chart({
        title: "Running and waiting", seconds: SECONDS, format: count,
        series: [{ name: "running", label: "running" }, { name: "waiting", label: "waiting" }],
      }),
      new Chart({
        title: "Tokens per second", seconds: SECONDS, format: rate, series: [{ name: "rate", label: "generated" }],
      }),
    ];
    byId("charts").append(...this.charts.map(({ element }) => element));
    document.addEventListener("visibilitychange", () => this.refresh());
    byId("span").addEventListener("input", () => this.refresh());
    byId("pause").addEventListener("click", () => this.#pause(!this.isPaused));
  }

  show(isShown) {
    this.isShown = isShown;
    this.refresh();
  }

  /** Ask now, and every two seconds while the dashboard is seen. */
  async refresh() {
    window.clearTimeout(this.timer);
    if (!this.isShown || this.isPaused || document.hidden || this.isAsking) return;
    this.isAsking = true;
    try {
      this.#draw(...await Promise.all([getJson("stats"), recordsOrNull()]));
      this.#say("");
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return; // goes on when there is a key
      this.#say(error instanceof ApiError ? error.message : "The server is not reachable.");
      if (!(error instanceof ApiError)) this.onUnreachable();
    } finally {
      this.isAsking = false;
    }
    this.timer = window.setTimeout(() => this.refresh(), PERIOD_MS);
  }

  #draw(stats, records) {
    const now = Math.max(Date.now() / 1000, ...(records ?? []).map(({ started_at: at }) => at));
    if (stats.num_steps < (this.window.last?.steps ?? 0)) this.window = new Window(SECONDS); // a new process
    const sample = {
      at: now, total: stats.num_output_tokens, rate: NaN, steps: stats.num_steps,
      running: stats.num_running, waiting: stats.num_waiting,
    };
    this.window.add(sample);
    sample.rate = growth(this.window.samples, "total", RATE_SECONDS);
    this.tiles.draw(stats, records, sample.rate);
    for (const chart of this.charts) chart.draw(this.window.samples);
    if (records === null) setText(byId("no-requests"), "This server keeps no records of requests.");
    this.table.draw(records ?? [], now, Number(byId("span").value));
    setText(byId("updated"), `Updated ${clock(now)}`);
  }

  #pause(isPaused) {
    this.isPaused = isPaused;
    byId("pause").setAttribute("aria-pressed", String(isPaused));
    setText(byId("pause"), isPaused ? "Paused" : "Pause");
    this.refresh();
  }

  #say(text) {
    byId("dashboard-problem").hidden = text === "";
    setText(byId("dashboard-problem"), text);
  }
}

/** Null where the server has no such route: then there are figures, but no timeline. */
async function recordsOrNull() {
  try {
    return (await getJson(`requests?limit=${NUM_RECORDS}`)).data;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}
