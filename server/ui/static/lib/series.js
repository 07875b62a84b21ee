// Figures of the dashboard: percentiles, rates, what a record's time was spent on.

/** The value below which `share` of the values lie, by linear interpolation; NaN of none. */
export function percentile(values, share) {
  if (values.length === 0) return NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const place = (sorted.length - 1) * share;
  const below = Math.floor(place);
  const above = Math.ceil(place);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
}

/** Samples of the last `seconds`, oldest first. A sample is an object with `at` in seconds. */
export class Window {
  constructor(seconds) {
    this.seconds = seconds;
    this.samples = [];
  }

  add(sample) {
    this.samples.push(sample);
    const first = this.samples.findIndex(({ at }) => at >= sample.at - this.seconds);
    this.samples.splice(0, first);
  }

  get last() {
    return this.samples.at(-1);
  }
}

/** Growth of a total per second over the last `seconds`; NaN until the samples span a second. */
export function growth(samples, name, seconds) {
  const last = samples.at(-1);
  const first = samples.find(({ at }) => last.at - at <= seconds);
  if (first === undefined || last.at - first.at < 1) return NaN;
  return Math.max(0, last[name] - first[name]) / (last.at - first.at);
}

/** Milliseconds between two tokens of a request on average; NaN with fewer than two. */
export function interToken(record) {
  const choices = Math.max(1, record.finish_reasons?.length ?? 1);
  const gaps = record.completion_tokens / choices - 1;
  const decode = record.times_ms?.decode;
  return gaps > 0 && Number.isFinite(decode) ? decode / gaps : NaN;
}

export const PARTS = ["waiting", "prefill", "decode", "rest"];

const PART_OF = {
  upload: "waiting",
  waiting: "waiting",
  worker: "waiting",
  queue: "waiting",
  prefill: "prefill",
  decode: "decode",
};

/** Milliseconds of a record for each of PARTS. What is not told yet is `rest`. */
export function partsOf(record, now) {
  const parts = Object.fromEntries(PARTS.map((part) => [part, 0]));
  for (const [name, value] of Object.entries(record.times_ms ?? {})) {
    if (Number.isFinite(value)) parts[PART_OF[name] ?? "rest"] += value;
  }
  const known = PARTS.reduce((sum, part) => sum + parts[part], 0);
  parts.rest += Math.max(0, elapsed(record, now) - known);
  return parts;
}

/** Milliseconds that a request has taken until `now` (seconds), or took. */
export function elapsed(record, now) {
  if (record.state !== "running") return record.duration_ms ?? 0;
  return Math.max(record.duration_ms ?? 0, (now - record.started_at) * 1000, 0);
}
