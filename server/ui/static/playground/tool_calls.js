// A call of a tool, with a place to type its result.

import { h } from "../lib/dom.js";
import { indented, sampleResult } from "../lib/examples.js";
import { codeBlock } from "../lib/markdown_view.js";

let numCards = 0;

/** The view of a call, and the message that its result becomes. */
export function callCard({ id, function: { name, arguments: args } }) {
  numCards += 1;
  const place = `call-${numCards}`;
  const input = h("textarea", { id: place, rows: "2", class: "mono", spellcheck: "false" });
  input.value = sampleResult(name);
  const element = h(
    "section",
    { class: "call", "aria-label": `Call of ${name}` },
    h("h4", {}, "Calls ", h("code", { text: name })),
    codeBlock(pretty(args), "arguments"),
    h("div", { class: "field" }, h("label", { for: place, text: "Result to send back" }), input),
  );
  return { element, result: () => ({ role: "tool", tool_call_id: id, content: input.value }) };
}

function pretty(text) {
  try {
    return indented(JSON.parse(text));
  } catch {
    return text; // the answer may have been cut in the middle
  }
}
