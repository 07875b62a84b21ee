// A request as a curl command and as a Python program. Neither contains the API key.

const VARIABLE = "ROSEINFER_API_KEY";

/** Arguments of `chat.completions.create` in the openai package; others go into `extra_body`. */
const SDK_FIELDS = new Set([
  "model", "messages", "stream", "stream_options", "temperature", "top_p", "max_completion_tokens",
  "seed", "stop", "frequency_penalty", "presence_penalty", "logprobs", "top_logprobs", "tools",
  "tool_choice", "response_format", "reasoning_effort", "n",
]);

/** The command. `hasKey`: take the key from the environment. */
export function curl(base, body, hasKey) {
  const lines = [`curl${body.stream ? " -N" : ""}`, shell(`${base}/chat/completions`)];
  if (hasKey) lines.push(`-H "Authorization: Bearer $${VARIABLE}"`);
  lines.push("-H 'Content-Type: application/json'", `-d ${shell(JSON.stringify(body, null, 2))}`);
  return lines.join(" \\\n  ");
}

/** The program, for the openai package. */
export function python(base, body, hasKey) {
  const extra = Object.entries(body).filter(([name]) => !SDK_FIELDS.has(name));
  const lines = [];
  if (hasKey) lines.push("import os", "");
  lines.push(
    "from openai import OpenAI",
    "",
    "client = OpenAI(",
    `    base_url=${literal(base)},`,
    `    api_key=${hasKey ? `os.environ["${VARIABLE}"]` : '"none"'},`,
    ")",
    `${body.stream ? "stream" : "completion"} = client.chat.completions.create(`,
  );
  for (const [name, value] of Object.entries(body)) {
    if (SDK_FIELDS.has(name)) lines.push(`    ${name}=${literal(value, 4)},`);
  }
  if (extra.length > 0) lines.push(`    extra_body=${literal(Object.fromEntries(extra), 4)},`);
  lines.push(")", ...(body.stream ? STREAMED : ["print(completion.choices[0].message)"]));
  return lines.join("\n");
}

const STREAMED = [
  "for chunk in stream:",
  "    for choice in chunk.choices:",
  '        print(choice.delta.content or "", end="", flush=True)',
];

/** A word of a POSIX shell. */
function shell(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** A value of JSON as a literal of Python. */
export function literal(value, indent = 0) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const items = isList
    ? value.map((item) => literal(item, indent + 4))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${literal(item, indent + 4)}`);
  const [open, close] = isList ? "[]" : "{}";
  const short = `${open}${items.join(", ")}${close}`;
  if (short.length + indent <= 72 && !short.includes("\n")) return short;
  const space = " ".repeat(indent + 4);
  return `${open}\n${items.map((item) => `${space}${item},\n`).join("")}${" ".repeat(indent)}${close}`;
}
