// Numbers and times as people read them.

const NONE = "–";

/** 1234567 as "1,234,567". */
export function count(value) {
  return Number.isFinite(value) ? Math.round(value).toLocaleString("en-US") : NONE;
}

/** Milliseconds as "850 ms", "1.25 s" or "2 min 5 s". */
export function ms(value) {
  if (!Number.isFinite(value)) return NONE;
  if (value < 1) return `${value.toFixed(2)} ms`;
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 10_000) return `${(value / 1000).toFixed(2)} s`;
  if (value < 60_000) return `${(value / 1000).toFixed(1)} s`;
  const seconds = Math.round(value / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** A share of 1 as "42 %", "0.3 %" or "<0.1 %". */
export function percent(share) {
  if (!Number.isFinite(share)) return NONE;
  const value = share * 100;
  if (value > 0 && value < 0.1) return "<0.1 %";
  return `${value < 10 && value > 0 ? value.toFixed(1) : Math.round(value)} %`;
}

/** Tokens per second. */
export function rate(value) {
  if (!Number.isFinite(value)) return NONE;
  return value < 10 ? value.toFixed(1) : count(value);
}

/** Unix seconds as the local time of day. */
export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

/** A token as text that shows its spaces and line ends. */
export function visible(text) {
  const shown = text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥");
  return shown === "" ? "∅" : shown;
}
