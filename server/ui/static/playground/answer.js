// One answer: what has arrived of it, and its view.

import { copyButton, h, setText } from "../lib/dom.js";
import { count, ms, rate } from "../lib/format.js";
import { MarkdownView } from "../lib/markdown_view.js";
import { TokenView } from "./token_view.js";
import { callCard } from "./tool_calls.js";

/** An answer whose pieces came within so little time came at once: its rate would say nothing. */
const LEAST_MS = 50;

/** Takes chunks of a stream with one choice. */
export class Answer {
  constructor({ openRecord, onResults }) {
    this.openRecord = openRecord;
    this.onResults = onResults;
    this.content = "";
    this.reasoning = "";
    this.calls = [];
    this.finishReason = null;
    this.usage = null;
    this.id = null;
    this.begin = performance.now();
    this.first = null;
    this.frame = 0;
    this.#build();
  }

  /** The message for the next request; null if there is nothing in it. */
  get message() {
    if (!this.content && this.calls.length === 0) return null;
    const calls = this.calls.length > 0 ? { tool_calls: this.calls } : {};
    return { role: "assistant", content: this.content || null, ...calls };
  }

  feed(chunk) {
    this.id = chunk.id ?? this.id;
    this.usage = chunk.usage ?? this.usage;
    for (const choice of chunk.choices) {
      const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta;
      if (content || reasoning || calls) this.first ??= performance.now();
      this.content += content ?? "";
      this.reasoning += reasoning ?? "";
      for (const call of calls ?? []) this.#addCall(call);
      if (choice.logprobs?.content) this.#addTokens(choice.logprobs.content);
      this.finishReason = choice.finish_reason ?? this.finishReason;
    }
    if (!this.frame) this.frame = window.requestAnimationFrame(() => this.#draw());
  }

  /** The answer is complete, or `ending` says why not. */
  end(ending = "") {
    this.#draw();
    this.element.removeAttribute("aria-busy");
    this.element.classList.remove("growing");
    if (this.calls.length > 0) this.#showCalls(ending);
    const parts = ending ? [ending] : [this.#reason()];
    const end = performance.now();
    if (this.first !== null) parts.push(`first token ${ms(this.first - this.begin)}`);
    if (this.usage) {
      const { prompt_tokens: prompt, completion_tokens: tokens, prompt_tokens_details: details } = this.usage;
      const cached = details?.cached_tokens ? ` (${count(details.cached_tokens)} cached)` : "";
      parts.push(`${count(prompt)}${cached} + ${count(tokens)} tokens`);
      if (tokens > 1 && end - this.first >= LEAST_MS) parts.push(`${rate((tokens - 1) / ((end - this.first) / 1000))} tokens/s`);
    }
    setText(this.figures, parts.join(" · "));
    this.record.hidden = this.id === null;
    this.foot.hidden = false;
  }

  fail(message) {
    this.problem.textContent = message;
    this.problem.hidden = false;
    this.end("failed");
  }

  #reason() {
    return { stop: "complete", length: "cut at the limit", tool_calls: "calls tools" }[this.finishReason]
      ?? this.finishReason ?? "complete";
  }

  #build() {
    this.text = new MarkdownView();
    this.thought = h("p", { class: "thought" });
    this.thinking = h("details", { class: "thinking", hidden: true }, h("summary", { text: "Thinking" }), this.thought);
    this.problem = h("p", { class: "problem boxed", role: "alert", hidden: true });
    this.cards = h("div", { class: "calls" });
    this.figures = h("span", { class: "figures" });
    this.record = h("button", { type: "button", class: "quiet", hidden: true }, "Record");
    this.record.addEventListener("click", () => this.openRecord(this.id));
    this.toggle = h("button", { type: "button", class: "quiet", "aria-pressed": "false", hidden: true }, "Tokens");
    this.toggle.addEventListener("click", () => this.#showTokens(this.toggle.getAttribute("aria-pressed") !== "true"));
    this.retry = h("button", { type: "button", class: "quiet retry" }, "Try again");
    const copy = copyButton("Copy the answer", () => this.content);
    this.foot = h("footer", { hidden: true }, this.figures, h("span", { class: "actions" }, this.toggle, copy, this.record, this.retry));
    this.body = h("div", { class: "bubble" }, this.thinking, this.text.element, this.cards, this.problem);
    this.element = h("article", { class: "message assistant growing", "aria-label": "Answer", "aria-busy": "true" }, this.body, this.foot);
  }

  #draw() {
    window.cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.text.set(this.content);
    if (this.reasoning) {
      this.thinking.hidden = false;
      setText(this.thought, this.reasoning);
    }
    this.onDraw?.();
  }

  #addCall({ index, id, type, function: { name, arguments: args } }) {
    this.calls[index] ??= { id, type: type ?? "function", function: { name: "", arguments: "" } };
    this.calls[index].function.name += name ?? "";
    this.calls[index].function.arguments += args ?? "";
  }

  #addTokens(tokens) {
    if (!this.tokens) {
      this.tokens = new TokenView();
      this.text.element.after(this.tokens.element);
      this.toggle.hidden = false;
      this.#showTokens(true);
    }
    this.tokens.add(tokens);
  }

  #showTokens(areShown) {
    this.toggle.setAttribute("aria-pressed", String(areShown));
    this.tokens.element.hidden = !areShown;
    this.text.element.hidden = areShown;
  }

  /** Ask for the results of calls. Those of an answer that was cut may be cut too. */
  #showCalls(ending) {
    if (ending || this.finishReason === "length") {
      this.problem.textContent ||= "The call of a tool was cut.";
      this.problem.hidden = false;
      this.calls = [];
      return;
    }
    const cards = this.calls.map(callCard);
    const send = h("button", { type: "button", class: "primary" }, cards.length > 1 ? "Send results" : "Send result");
    send.addEventListener("click", () => {
      send.disabled = true;
      this.onResults(cards.map(({ result }) => result()));
    });
    this.cards.append(...cards.map(({ element }) => element), h("div", { class: "row end" }, send));
  }
}
