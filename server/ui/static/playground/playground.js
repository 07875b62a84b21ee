// The conversation: sends messages, shows answers as they arrive, stops them.

import { announce, byId, h, setAttr } from "../lib/dom.js";
import { stream } from "../lib/api.js";
import { count } from "../lib/format.js";
import { buildRequest } from "../lib/request.js";
import { Answer } from "./answer.js";
import { CodePanel } from "./code_panel.js";
import { Settings } from "./settings.js";
import { hideTip } from "./token_view.js";

const SUGGESTIONS = ["Tell me a story about a fox.", "Hello! Who are you?", "Write a short poem about the sea."];
const HELLO = { role: "user", content: "Hello!" };
/** Pixels from the end of the transcript within which it follows the answer. */
const NEAR = 60;

export class Playground {
  constructor({ openRecord }) {
    this.openRecord = openRecord;
    this.messages = [];
    this.answered = [];
    this.running = null;
    this.code = new CodePanel();
    this.settings = new Settings(() => this.#update());
    this.transcript = byId("transcript");
    this.draft = byId("draft");
    this.#listen();
    this.#clear();
  }

  setModels(names) {
    this.settings.setModels(names);
    this.#update();
  }

  #listen() {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send(this.draft.value);
    });
    this.draft.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send(this.draft.value);
    });
    this.draft.addEventListener("input", () => this.#update());
    this.isFollowing = true;
    this.transcript.addEventListener("scroll", () => this.#onScroll(), { passive: true });
    byId("stop-answer").addEventListener("click", () => this.#stop());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.running && !document.querySelector("dialog[open]")) this.#stop();
    });
    byId("clear").addEventListener("click", () => {
      this.#stop();
      this.#setRunning(null);
      this.#clear();
      this.draft.focus();
    });
    for (const name of ["settings", "code"]) this.#listenToToggle(name);
  }

  /** On narrow screens, the panels are behind buttons. */
  #listenToToggle(name) {
    const toggle = byId(`toggle-${name}`);
    toggle.addEventListener("click", () => {
      const isOpen = byId(name).classList.toggle("open");
      setAttr(toggle, "aria-expanded", String(isOpen));
    });
  }

  #clear() {
    this.messages = [];
    this.answered = [];
    const buttons = SUGGESTIONS.map((text) =>
      h("button", { type: "button", class: "suggestion", on: { click: () => this.#send(text) } }, text));
    const welcome = h("div", { class: "welcome" },
      h("p", { class: "large", text: "What shall the model do?" }),
      h("p", { class: "hint", text: "Type a message, or begin with one of these." }),
      h("div", { class: "suggestions" }, buttons));
    this.transcript.replaceChildren(welcome);
    this.#update();
  }

  /** The request that would be sent now, its problems marked in the form. */
  #update() {
    const { body, problems } = buildRequest(this.settings.read(), this.#shownMessages());
    this.settings.showProblems(problems);
    this.code.show(body);
    return problems;
  }

  /** With the draft, else those of the last answer, else an example. */
  #shownMessages() {
    const text = this.draft.value.trim();
    if (text) return [...this.messages, { role: "user", content: text }];
    if (this.answered.length > 0) return this.answered;
    return this.messages.length > 0 ? this.messages : [HELLO];
  }

  #send(text) {
    if (this.running || !text.trim()) return;
    const problems = Object.values(this.#update());
    if (problems.length > 0) {
      announce(`A setting is wrong. ${problems[0]}`);
      this.settings.form.querySelector("[aria-invalid=true]")?.focus();
      return;
    }
    this.draft.value = "";
    this.#add({ role: "user", content: text.trim() });
    this.#answer();
  }

  #add(message) {
    this.transcript.querySelector(".welcome")?.remove();
    this.messages.push(message);
    const label = message.role === "user" ? "You" : "Result of a tool";
    this.transcript.append(
      h("article", { class: `message ${message.role}`, "aria-label": label }, h("p", { class: "bubble", text: message.content })),
    );
  }

  async #answer() {
    this.answered = [...this.messages];
    const { body } = buildRequest(this.settings.read(), this.answered);
    const answer = new Answer({
      openRecord: this.openRecord,
      onResults: (results) => {
        if (this.running) return;
        results.forEach((result) => this.#add(result));
        this.#answer();
      },
    });
    answer.retry.addEventListener("click", () => this.#retry(answer));
    this.transcript.querySelectorAll(".retry").forEach((button) => button.remove());
    answer.onDraw = () => this.#follow();
    this.transcript.append(answer.element);
    this.isFollowing = true;
    this.#follow();
    const conversation = this.messages; // a new chat has another one
    const controller = new AbortController();
    this.#setRunning(controller);
    announce("The model answers.");
    await this.#receive(answer, body, controller);
    if (answer.message) conversation.push(answer.message);
    if (this.running === controller) this.#setRunning(null);
    this.#follow();
    this.#update();
  }

  async #receive(answer, body, controller) {
    try {
      for await (const { chunk } of stream("v1/chat/completions", body, controller.signal)) answer.feed(chunk);
      answer.end();
      announce(`Answer: ${answer.content || `${count(answer.calls.length)} calls of tools`}`);
    } catch (error) {
      if (controller.signal.aborted) {
        answer.end("stopped by you");
        announce("Stopped.");
      } else {
        answer.fail(error.message); // an alert, which is read by itself
      }
    }
  }

  #retry(answer) {
    if (this.running) return;
    if (this.messages.at(-1)?.role === "assistant") this.messages.pop();
    answer.element.remove();
    this.#answer();
  }

  #stop() {
    this.running?.abort();
  }

  #setRunning(controller) {
    const hadFocus = document.activeElement === byId("stop-answer");
    this.running = controller;
    byId("send").hidden = controller !== null;
    byId("stop-answer").hidden = controller === null;
    if (hadFocus) this.draft.focus();
  }

  /** Growth scrolls nothing, so this is a person, or `#follow`. */
  #onScroll() {
    hideTip();
    const { scrollHeight, scrollTop, clientHeight } = this.transcript;
    this.isFollowing = scrollHeight - scrollTop - clientHeight < NEAR;
  }

  /** Keep the end in view, unless the person has scrolled away from it. */
  #follow() {
    if (this.isFollowing) this.transcript.scrollTop = this.transcript.scrollHeight;
  }
}
