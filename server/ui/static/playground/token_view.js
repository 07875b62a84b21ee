// An answer as its tokens, coloured by probability. One token at a time is in the tab order.

import { Bar, byId, h } from "../lib/dom.js";
import { percent, visible } from "../lib/format.js";
import { CLASSES, TokenText, alternativesOf, classOf } from "../lib/tokens.js";

const KEYS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

export class TokenView {
  constructor() {
    this.text = new TokenText();
    this.tokens = [];
    this.list = h("div", {
      class: "tokens",
      role: "listbox",
      "aria-label": "Tokens of the answer; the arrow keys move",
    });
    this.element = h("div", {}, this.list, legend());
    this.list.addEventListener("pointerover", (event) => this.#show(event.target.closest(".token")));
    this.list.addEventListener("pointerleave", hideTip);
    this.list.addEventListener("focusin", (event) => this.#show(event.target.closest(".token")));
    this.list.addEventListener("focusout", hideTip);
    this.list.addEventListener("keydown", (event) => this.#onKey(event));
  }

  /** Add the tokens of a chunk, in order. */
  add(tokens) {
    for (const token of tokens) {
      const shown = this.text.of(token);
      const probability = Math.exp(token.logprob);
      const node = h("span", {
        class: `token ${classOf(token.logprob)}`,
        role: "option",
        tabindex: this.tokens.length === 0 ? "0" : "-1",
        "aria-selected": String(this.tokens.length === 0),
        "aria-label": `${visible(token.token)}, ${percent(probability)}`,
      }, shown === "" ? "▯" : shown);
      node.dataset.index = String(this.tokens.length);
      this.tokens.push(token);
      this.list.append(node);
    }
  }

  #show(node) {
    if (!node) return;
    showTip(node, this.tokens[Number(node.dataset.index)]);
  }

  #onKey(event) {
    if (event.key === "Escape") hideTip();
    const nodes = this.list.children;
    const at = [...nodes].indexOf(event.target);
    const goal = { Home: 0, End: nodes.length - 1 }[event.key] ?? at + (KEYS[event.key] ?? NaN);
    const next = nodes[goal];
    if (at < 0 || !next) return;
    for (const [node, isNext] of [[event.target, false], [next, true]]) {
      node.tabIndex = isNext ? 0 : -1;
      node.setAttribute("aria-selected", String(isNext));
    }
    next.focus();
    event.preventDefault();
  }
}

function legend() {
  const entries = CLASSES.map(([name, meaning]) =>
    h("span", { class: "entry" }, h("span", { class: `token ${name}`, "aria-hidden": "true" }, "ab"), meaning));
  return h("p", { class: "legend small" }, entries);
}

let described = null;

/** Show the alternatives of a token beside it. */
function showTip(node, token) {
  const tip = byId("tip");
  const rows = alternativesOf(token).map(({ token: text, logprob, isSampled }) => {
    const share = Math.exp(logprob);
    return h("tr", { class: isSampled ? "sampled" : null },
      h("td", { class: "mono", text: visible(text) }),
      h("td", {}, new Bar().set(share).element),
      h("td", { class: "number", text: percent(share) }),
      h("td", { class: "number muted", text: logprob.toFixed(2) }));
  });
  tip.replaceChildren(h("table", {}, h("tbody", {}, rows)));
  tip.hidden = false;
  place(tip, node.getBoundingClientRect());
  described?.removeAttribute("aria-describedby");
  described = node;
  node.setAttribute("aria-describedby", "tip");
}

/** Below the token, or above it where there is no room below. */
function place(tip, { left, top, bottom }) {
  const { width, height } = tip.getBoundingClientRect();
  const fits = bottom + height + 8 < window.innerHeight;
  tip.style.left = `${Math.max(8, Math.min(left, window.innerWidth - width - 8))}px`;
  tip.style.top = `${fits ? bottom + 4 : Math.max(8, top - height - 4)}px`;
}

export function hideTip() {
  byId("tip").hidden = true;
  described?.removeAttribute("aria-describedby");
  described = null;
}
