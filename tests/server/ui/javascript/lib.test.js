import assert from "node:assert/strict";
import { test } from "node:test";

import { clock, count, ms, percent, rate, visible } from "../static/lib/format.js";
import { buildRequest } from "../static/lib/request.js";
import { Window, elapsed, growth, interToken, partsOf, percentile } from "../static/lib/series.js";
import { SCHEMAS, TOOLS, sampleResult } from "../static/lib/examples.js";
import { SseParser } from "../static/lib/sse.js";
import { TokenText, alternativesOf, classOf } from "../static/lib/tokens.js";

const FORM = {
  model: "m", system: "", stop: "", temperature: "", top_p: "", max_completion_tokens: "", top_k: "", min_p: "", seed: "",
  frequency_penalty: "", presence_penalty: "", repetition_penalty: "", useTools: false, tools: "[]", toolChoice: "auto",
  useSchema: false, schema: "{}", logprobs: false,
};
const HI = [{ role: "user", content: "hi" }];

test("events arrive whole, however they are cut", () => {
  const text = 'data: {"a":1}\n\n: comment\n\ndata: x\ndata:y\r\n\r\ndata: [DONE]\n\ndata: cut';
  for (let size = 1; size < 9; size += 1) {
    const parser = new SseParser();
    const found = [];
    for (let at = 0; at < text.length; at += size) found.push(...parser.feed(text.slice(at, at + size)));
    if (size === 1) continue; // "\r" and "\n" in two pieces: this server sends no "\r"
    assert.deepEqual(found.filter((event) => !event.includes("x")), ['{"a":1}', "[DONE]"]);
  }
  assert.deepEqual(new SseParser().feed("data: x\ndata:y\r\n\r\n"), ["x\ny"]);
});

test("an empty form sends defaults", () => {
  const { body, problems } = buildRequest(FORM, HI);
  assert.deepEqual(problems, {});
  assert.deepEqual(body, { model: "m", messages: HI, stream: true, stream_options: { include_usage: true } });
});

test("a full form", () => {
  const form = {
    ...FORM, system: "Be brief.", temperature: "0", top_k: "5", seed: "-1", stop: "a\nb\n", useTools: true,
    tools: JSON.stringify(TOOLS.Weather), toolChoice: "required", useSchema: true, schema: "{}", logprobs: true,
  };
  const { body, problems } = buildRequest(form, HI);
  assert.deepEqual(problems, {});
  assert.deepEqual(body.messages[0], { role: "system", content: "Be brief." });
  assert.equal(body.temperature, 0);
  assert.equal(body.top_k, 5);
  assert.equal(body.seed, -1);
  assert.deepEqual(body.stop, ["a", "b"]);
  assert.equal(body.tool_choice, "required");
  assert.deepEqual(body.response_format.json_schema.schema, {});
  assert.equal(body.top_logprobs, 5);
});

test("problems are named by field", () => {
  const wrong = { ...FORM, temperature: "warm", useTools: true, tools: "[]", useSchema: true, schema: "{" };
  const { body, problems } = buildRequest(wrong, HI);
  assert.deepEqual(Object.keys(problems).sort(), ["schema", "temperature", "tools"]);
  assert.equal(body.tools, undefined);
  assert.equal(body.temperature, undefined);
  for (const schema of ["[]", "null", "1"]) {
    assert.ok(buildRequest({ ...FORM, useSchema: true, schema }, HI).problems.schema);
  }
});

test("examples are complete", () => {
  for (const tools of Object.values(TOOLS)) {
    for (const { function: { name, parameters } } of tools) {
      assert.ok(sampleResult(name));
      assert.equal(parameters.type, "object");
    }
  }
  for (const schema of Object.values(SCHEMAS)) assert.equal(schema.type, "object");
});

test("percentiles", () => {
  assert.ok(Number.isNaN(percentile([], 0.5)));
  assert.equal(percentile([7], 0.99), 7);
  assert.equal(percentile([3, 1, 2], 0.5), 2);
  assert.equal(percentile([0, 10], 0.95), 9.5);
});

test("a window forgets, and growth is over its own seconds", () => {
  const window = new Window(10);
  for (let at = 0; at <= 20; at += 2) window.add({ at, total: at * 5 });
  assert.equal(window.samples[0].at, 10);
  assert.equal(growth(window.samples, "total", 4), 5);
  assert.ok(Number.isNaN(growth([{ at: 1, total: 1 }], "total", 4)));
  assert.ok(Number.isNaN(growth([{ at: 1, total: 1 }, { at: 1.9, total: 500 }], "total", 4)), "too short");
  assert.equal(growth([{ at: 1, total: 9 }, { at: 2, total: 1 }], "total", 4), 0);
});

test("inter-token time", () => {
  assert.equal(interToken({ completion_tokens: 11, finish_reasons: ["stop"], times_ms: { decode: 100 } }), 10);
  assert.equal(interToken({ completion_tokens: 22, finish_reasons: ["stop", "stop"], times_ms: { decode: 100 } }), 10);
  assert.ok(Number.isNaN(interToken({ completion_tokens: 1, finish_reasons: ["stop"], times_ms: { decode: 1 } })));
  assert.ok(Number.isNaN(interToken({ completion_tokens: 5, finish_reasons: [], times_ms: null })));
});

test("parts add up to the duration", () => {
  const times = { upload: 1, waiting: 2, worker: 3, queue: 4, prefill: 20, decode: 60, delivery: 5, other: 5 };
  const ended = { state: "ended", started_at: 0, duration_ms: 100, times_ms: times };
  assert.deepEqual(partsOf(ended, 50), { waiting: 10, prefill: 20, decode: 60, rest: 10 });
  const running = { state: "running", started_at: 10, duration_ms: null, times_ms: { queue: 500 } };
  assert.deepEqual(partsOf(running, 11), { waiting: 500, prefill: 0, decode: 0, rest: 500 });
  assert.equal(elapsed(running, 9), 0);
});

test("colours of probabilities", () => {
  assert.equal(classOf(Math.log(0.01)), "p0");
  assert.equal(classOf(Math.log(0.3)), "p2");
  assert.equal(classOf(0), "p5");
  assert.equal(classOf(-Infinity), "p0");
});

test("a character that spans tokens is shown once", () => {
  const text = new TokenText();
  const bytes = [...new TextEncoder().encode("é!")];
  const shown = [[bytes[0]], [bytes[1]], [bytes[2]]].map((part) => text.of({ token: "?", bytes: part }));
  assert.deepEqual(shown, ["", "é", "!"]);
  assert.equal(text.of({ token: "plain", bytes: null }), "plain");
});

test("the sampled token is among its alternatives", () => {
  const one = (token, logprob) => ({ token, logprob, bytes: null });
  const inside = alternativesOf({ ...one("b", -2), top_logprobs: [one("a", -1), one("b", -2)] });
  assert.deepEqual(inside.map(({ token, isSampled }) => [token, isSampled]), [["a", false], ["b", true]]);
  const outside = alternativesOf({ ...one("z", -9), top_logprobs: [one("a", -1)] });
  assert.deepEqual(outside.map(({ token }) => token), ["a", "z"]);
});

test("numbers for people", () => {
  assert.deepEqual([ms(0.5), ms(2.25), ms(850), ms(1250), ms(59_000), ms(125_000), ms(NaN)],
    ["0.50 ms", "2.3 ms", "850 ms", "1.25 s", "59.0 s", "2 min 5 s", "–"]);
  assert.deepEqual([percent(0.425), percent(0.004), percent(0.0001), percent(0), percent(1), percent(NaN)],
    ["43 %", "0.4 %", "<0.1 %", "0 %", "100 %", "–"]);
  assert.deepEqual([count(1234567), count(NaN), rate(3.14159), rate(1234)], ["1,234,567", "–", "3.1", "1,234"]);
  assert.equal(visible(" a\n"), "␣a↵");
  assert.match(clock(0), /^\d\d:\d\d:\d\d$/);
});
