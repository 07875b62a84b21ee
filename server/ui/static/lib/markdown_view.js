// A tree of lib/markdown.js as DOM nodes.

import { copyButton, h } from "./dom.js";
import { parse, parseInline } from "./markdown.js";

/** Shows a text that grows. Blocks that have not changed keep their nodes, and a selection. */
export class MarkdownView {
  constructor() {
    this.element = h("div", { class: "markdown" });
    this.shown = [];
  }

  set(text) {
    const blocks = parse(text);
    let same = 0;
    while (same < this.shown.length && same < blocks.length && blocks[same].raw === this.shown[same]) same += 1;
    while (this.element.childNodes.length > same) this.element.lastChild.remove();
    this.element.append(...blocks.slice(same).map(nodeOf));
    this.shown = blocks.map(({ raw }) => raw);
  }
}

function nodeOf(block) {
  switch (block.type) {
    case "heading": // below the headings of the page
      return h(`h${Math.min(6, block.level + 3)}`, { class: `h${block.level}` }, inside(block.text));
    case "code":
      return codeBlock(block.text, block.language);
    case "rule":
      return h("hr");
    case "quote":
      return h("blockquote", {}, block.blocks.map(nodeOf));
    case "list":
      return listNode(block);
    case "table":
      return tableNode(block);
    default:
      return h("p", {}, inside(block.text));
  }
}

/** A block of code with a button that copies it. It scrolls, so the keyboard can reach it. */
export function codeBlock(text, language = "") {
  const pre = h("pre", { tabindex: "0", role: "group", "aria-label": `${language || "Text"}, code` });
  pre.append(h("code", { text }));
  const bar = h("div", { class: "code-bar" }, h("span", { text: language }), copyButton("Copy code", () => text));
  return h("div", { class: "code" }, bar, pre);
}

function listNode({ start, items }) {
  const nodes = items.map((blocks) => {
    const isTight = blocks.length > 0 && blocks[0].type === "paragraph";
    const head = isTight ? inside(blocks[0].text) : [];
    return h("li", {}, head, blocks.slice(isTight ? 1 : 0).map(nodeOf));
  });
  return start === null ? h("ul", {}, nodes) : h("ol", { start }, nodes);
}

function tableNode({ head, rows }) {
  const cells = (tag, texts, props = {}) => h("tr", {}, texts.map((text) => h(tag, props, inside(text))));
  const table = h(
    "table",
    {},
    h("thead", {}, cells("th", head, { scope: "col" })),
    h("tbody", {}, rows.map((row) => cells("td", row))),
  );
  return h("div", { class: "table-scroll", tabindex: "0", role: "group", "aria-label": "Table" }, table);
}

function inside(text) {
  return parseInline(text).map(inlineNode);
}

function inlineNode(node) {
  if (node.type === "text") return document.createTextNode(node.text);
  if (node.type === "code") return h("code", { text: node.text });
  const children = node.nodes.map(inlineNode);
  if (node.type !== "link") return h(node.type, {}, children);
  const rel = "noopener noreferrer nofollow";
  return h("a", { href: node.href, target: "_blank", rel, title: node.href }, children);
}
