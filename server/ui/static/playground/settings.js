// The form of settings: its fields, examples, problems, and what it says.

import { byId, h, setAttr, setText } from "../lib/dom.js";
import { SCHEMAS, TOOLS, indented } from "../lib/examples.js";

/** Numbers of the form: name, label, lowest, highest, step, title. */
const SAMPLING = [
  ["temperature", "Temperature", 0, 2, 0.1, "0 always takes the most likely token"],
  ["top_p", "Top p", 0, 1, 0.05, "Keep the likeliest tokens whose probabilities add up to this"],
  ["top_k", "Top k", 0, 1000, 1, "Keep this many of the likeliest tokens; 0 keeps all"],
  ["min_p", "Min p", 0, 1, 0.01, "Drop tokens below this share of the likeliest one"],
  ["max_completion_tokens", "Max tokens", 1, null, 1, "Longest answer, in tokens"],
  ["seed", "Seed", null, null, 1, "The same seed gives the same answer"],
  ["frequency_penalty", "Frequency pen.", -2, 2, 0.1, "Lower tokens for each time they occurred"],
  ["presence_penalty", "Presence pen.", -2, 2, 0.1, "Lower tokens that occurred"],
  ["repetition_penalty", "Repetition pen.", 0.1, 10, 0.05, "Above 1: lower tokens of prompt and answer"],
];

const DEFAULTS = { tools: indented(TOOLS.Weather), schema: indented(SCHEMAS.Person) };

/** Calls `onChange` after every change of a field. */
export class Settings {
  constructor(onChange) {
    this.form = byId("settings");
    byId("sampling").append(...SAMPLING.map(numberField));
    this.#addExamples("tools", TOOLS);
    this.#addExamples("schema", SCHEMAS);
    this.#reset();
    this.form.addEventListener("input", onChange);
    this.form.addEventListener("submit", (event) => event.preventDefault());
    byId("reset-settings").addEventListener("click", () => {
      this.#reset();
      onChange();
    });
  }

  setModels(names) {
    const chosen = this.form.elements.model.value;
    byId("model").replaceChildren(...names.map((name) => h("option", { value: name, text: name })));
    if (names.includes(chosen)) this.form.elements.model.value = chosen;
  }

  /** Strings and booleans by name of the field, as `buildRequest` takes them. */
  read() {
    const fields = [...this.form.elements].filter(({ name }) => name);
    return Object.fromEntries(
      fields.map((field) => [field.name, field.type === "checkbox" ? field.checked : field.value]),
    );
  }

  /** Mark the fields with problems, and only these. */
  showProblems(problems) {
    for (const field of this.form.elements) {
      if (!field.name) continue;
      const problem = problems[field.name] ?? "";
      setAttr(field, "aria-invalid", problem ? "true" : null);
      const place = document.getElementById(`${field.name}-problem`);
      if (place) setText(place, problem);
    }
  }

  #reset() {
    const model = this.form.elements.model.value;
    this.form.reset();
    for (const [name, text] of Object.entries(DEFAULTS)) this.form.elements[name].value = text;
    if (model) this.form.elements.model.value = model;
  }

  #addExamples(name, examples) {
    const select = byId(`${name}-example`);
    select.append(...Object.keys(examples).map((title) => h("option", { value: title, text: title })));
    select.addEventListener("input", () => {
      this.form.elements[name].value = indented(examples[select.value]);
    });
  }
}

function numberField([name, label, min, max, step, title]) {
  const input = h("input", {
    type: "number", id: name, name, min, max, step: step < 1 ? "any" : step, placeholder: "default", title,
    inputmode: "decimal",
  });
  return h("div", { class: "field" }, h("label", { for: name, text: label }), input);
}
