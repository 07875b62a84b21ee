// The body of a request from what the form says.

/** Fields of numbers in the form, with their names in the request. An empty one is not sent. */
const NUMBERS = [
  "temperature", "top_p", "max_completion_tokens", "top_k", "min_p", "seed",
  "frequency_penalty", "presence_penalty", "repetition_penalty",
];

/**
 * The body, and what is wrong by field of the form. `form` has strings and booleans; `messages`
 * are those of the conversation without the system prompt.
 */
export function buildRequest(form, messages) {
  const problems = {};
  const system = form.system.trim() ? [{ role: "system", content: form.system }] : [];
  const body = { ...(form.model ? { model: form.model } : {}), messages: [...system, ...messages] };
  for (const name of NUMBERS) {
    const text = form[name].trim();
    if (text === "") continue;
    const value = Number(text);
    if (Number.isFinite(value)) body[name] = value;
    else problems[name] = "This is no number.";
  }
  const stops = form.stop.split("\n").filter((line) => line !== "");
  if (stops.length > 0) body.stop = stops.length === 1 ? stops[0] : stops;
  if (form.useTools) addTools(body, form, problems);
  if (form.useSchema) addSchema(body, form, problems);
  if (form.logprobs) Object.assign(body, { logprobs: true, top_logprobs: 5 });
  body.stream = true;
  body.stream_options = { include_usage: true };
  return { body, problems };
}

function addTools(body, form, problems) {
  const tools = parsed(form.tools, "tools", problems);
  if (tools === undefined) return;
  if (!Array.isArray(tools) || tools.length === 0) {
    problems.tools = "Tools are a list of at least one function.";
    return;
  }
  body.tools = tools;
  if (form.toolChoice !== "auto") body.tool_choice = form.toolChoice;
}

function addSchema(body, form, problems) {
  const schema = parsed(form.schema, "schema", problems);
  if (schema === undefined) return;
  if (schema === null || typeof schema !== "object" || Array.isArray(schema)) {
    problems.schema = "A schema is an object.";
    return;
  }
  body.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
}

function parsed(text, name, problems) {
  try {
    return JSON.parse(text);
  } catch (error) {
    problems[name] = `This is no JSON: ${error.message}`;
    return undefined;
  }
}
