import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import { curl, literal, python } from "../static/lib/snippets.js";

const BODY = {
  model: "m", messages: [{ role: "user", content: `It's "$HOME" \`x\` \\ \n😀 end` }], top_k: 5, temperature: 0,
  stream: true, stop: null, tools: [{ strict: true, parameters: {} }],
};

test("a shell passes on the body of the curl command as it is", () => {
  const command = curl("http://h/v1", BODY, false);
  const script = `curl() { for word; do printf '%s\\0' "$word"; done; }\n${command}`;
  const words = execFileSync("sh", ["-c", script]).toString().split("\0");
  assert.deepEqual(words.slice(0, 5), ["-N", "http://h/v1/chat/completions", "-H", "Content-Type: application/json", "-d"]);
  assert.deepEqual(JSON.parse(words[5]), BODY);
});

test("Python reads the literals as the same values", () => {
  const deep = { a: [BODY, [], {}, [[1, 2.5, -1e21]]], "k\"": "x".repeat(200), b: [false, null] };
  const program = `import json, sys; print(json.dumps(eval(sys.argv[1])))`;
  const found = execFileSync("python3", ["-c", program, literal(deep)], { env: { PATH: process.env.PATH } });
  assert.deepEqual(JSON.parse(found), deep);
});

test("extensions go into extra_body", () => {
  const program = python("http://h/v1", BODY, false);
  assert.match(program, /extra_body=\{"top_k": 5\}/);
  assert.doesNotMatch(program, /^ {4}top_k=/m);
});

test("a key is read from the environment", () => {
  assert.match(curl("http://h/v1", BODY, true), /Bearer \$ROSEINFER_API_KEY/);
  assert.match(python("http://h/v1", BODY, true), /os\.environ\["ROSEINFER_API_KEY"\]/);
});
