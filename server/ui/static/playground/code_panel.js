// The request as code: two tabs that show the same request.

import { byId, copyButton, setAttr, setText } from "../lib/dom.js";
import { key, urlOf } from "../lib/api.js";
import { curl, python } from "../lib/snippets.js";

const LANGUAGES = { curl, python };

export class CodePanel {
  constructor() {
    this.language = "curl";
    this.body = null;
    this.code = byId("code-text").querySelector("code");
    this.tabs = Object.keys(LANGUAGES).map((name) => byId(`tab-${name}`));
    byId("code-copy").append(copyButton("Copy this code", () => this.code.textContent));
    for (const tab of this.tabs) {
      tab.addEventListener("click", () => this.#select(tab));
      tab.addEventListener("keydown", (event) => this.#onKey(event));
    }
  }

  /** Show another request. */
  show(body) {
    this.body = body;
    const base = urlOf("v1");
    setText(this.code, LANGUAGES[this.language](base, body, key.get() !== ""));
  }

  #select(tab) {
    for (const other of this.tabs) {
      setAttr(other, "aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
    }
    setAttr(byId("code-text"), "aria-labelledby", tab.id);
    this.language = tab.id.replace("tab-", "");
    if (this.body) this.show(this.body);
  }

  #onKey(event) {
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    const other = this.tabs.find((tab) => tab !== event.currentTarget);
    this.#select(other);
    other.focus();
    event.preventDefault();
  }
}
