// Markdown to a tree of plain objects: blocks, and what is inside of their lines.
//
// A part of CommonMark, with tables and ~~deleted~~ text. There is no HTML in it: a tag is text.
// Images are links, so that an answer loads nothing. Time is linear in the text's length.

const MAX_DEPTH = 8;
const MAX_INLINE = 50_000;
const MAX_LABEL = 400;
const MAX_URL = 2000;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?\s*#*$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_LINE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** The blocks of a text. Each has a `type` and, at the top, `raw`: its lines. */
export function parse(text) {
  return blocksOf(text.split("\n"), 0);
}

function blocksOf(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const [block, end] = blockAt(lines, at, depth);
    block.raw = lines.slice(at, end).join("\n");
    blocks.push(block);
    at = end;
  }
  return blocks;
}

/** The block that begins at a line, and the line after it. */
function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = line.length < 1000 && FENCE.exec(line);
  if (fence) return codeAt(lines, at, fence);
  const heading = line.length < 1000 && HEADING.exec(line);
  if (heading) return [{ type: "heading", level: heading[1].length, text: heading[2] ?? "" }, at + 1];
  if (isRule(line)) return [{ type: "rule" }, at + 1];
  if (depth < MAX_DEPTH && QUOTE.test(line)) return quoteAt(lines, at, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return listAt(lines, at, depth);
  if (isTable(lines, at)) return tableAt(lines, at);
  return paragraphAt(lines, at, depth);
}

function isRule(line) {
  return line.length < 200 && RULE.test(line);
}

function codeAt(lines, at, [, fence, language]) {
  let end = at + 1;
  while (end < lines.length && !closes(lines[end], fence)) end += 1;
  const text = lines.slice(at + 1, end).join("\n");
  return [{ type: "code", language, text }, Math.min(end + 1, lines.length)];
}

function closes(line, fence) {
  const text = line.trim();
  return text.length >= fence.length && text.length < 100 && [...text].every((c) => c === fence[0]);
}

function quoteAt(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return [{ type: "quote", blocks: blocksOf(inner, depth + 1) }, end];
}

function listAt(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(first[2]);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const marker = ITEM.exec(lines[end]);
    if (!marker || isRule(lines[end]) || /\d/.test(marker[2]) !== isOrdered) break;
    if (marker[1].length > first[1].length + 3) break;
    const [inner, next] = itemAt(lines, end, marker);
    items.push(blocksOf(inner, depth + 1));
    end = next;
  }
  const start = isOrdered ? Number.parseInt(first[2], 10) : null;
  return [{ type: "list", start, items }, end];
}

/** The lines of an item without its indentation, and the line after it. */
function itemAt(lines, at, marker) {
  const inner = [lines[at].slice(marker[0].length)];
  const indent = marker[1].length + 2;
  let end = at + 1;
  while (end < lines.length) {
    const line = lines[end];
    const isBlank = line.trim() === "";
    const isInside = indentOf(line) >= indent;
    if (isBlank ? !(indentOf(lines[end + 1] ?? "x") >= indent) : !isInside) {
      if (isBlank && ITEM.test(lines[end + 1] ?? "")) end += 1; // a loose list goes on
      break;
    }
    inner.push(isBlank ? "" : line.slice(Math.min(indentOf(line), marker[0].length)));
    end += 1;
  }
  return [inner, end];
}

function indentOf(line) {
  return line.length - line.trimStart().length;
}

function isTable(lines, at) {
  const next = lines[at + 1];
  return lines[at].includes("|") && next !== undefined && next.includes("-")
    && next.length < 2000 && TABLE_LINE.test(next)
    && cellsOf(next).length === cellsOf(lines[at]).length;
}

function tableAt(lines, at) {
  const head = cellsOf(lines[at]);
  let end = at + 2;
  const rows = [];
  while (end < lines.length && lines[end].includes("|")) {
    const cells = cellsOf(lines[end]);
    rows.push(head.map((_, column) => cells[column] ?? ""));
    end += 1;
  }
  return [{ type: "table", head, rows }, end];
}

function cellsOf(line) {
  const text = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return text.split("|").map((cell) => cell.trim());
}

function paragraphAt(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== "" && !beginsBlock(lines, end, depth)) end += 1;
  return [{ type: "paragraph", text: lines.slice(at, end).join("\n") }, end];
}

function beginsBlock(lines, at, depth) {
  const line = lines[at].slice(0, 1000);
  return FENCE.test(line) || HEADING.test(line) || isRule(line)
    || (depth < MAX_DEPTH && (QUOTE.test(line) || ITEM.test(line)));
}

/** What is inside of a block's text: nodes of type text, code, strong, em, del, link. */
export function parseInline(text, depth = 0) {
  if (depth > MAX_DEPTH || text.length > MAX_INLINE) return [{ type: "text", text }];
  return new Inline(text, depth).nodes();
}

const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

class Inline {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.at = 0;
    this.plain = "";
    this.found = [];
    this.unclosed = new Set(); // marks without an end in the rest of the text
  }

  nodes() {
    while (this.at < this.text.length) {
      if (!(this.escape() || this.code() || this.link() || this.address() || this.marked())) {
        this.plain += this.text[this.at];
        this.at += 1;
      }
    }
    this.flush();
    return this.found;
  }

  flush() {
    if (this.plain) this.found.push({ type: "text", text: this.plain });
    this.plain = "";
  }

  add(node, end) {
    this.flush();
    this.found.push(node);
    this.at = end;
    return true;
  }

  escape() {
    if (this.text[this.at] !== "\\" || !/[!-/:-@[-`{-~]/.test(this.text[this.at + 1] ?? "")) return false;
    this.plain += this.text[this.at + 1];
    this.at += 2;
    return true;
  }

  code() {
    if (this.text[this.at] !== "`") return false;
    let end = this.at;
    while (this.text[end] === "`") end += 1;
    const mark = this.text.slice(this.at, end);
    const close = this.unclosed.has(mark) ? -1 : this.endOfCode(mark, end);
    if (close < 0) {
      this.unclosed.add(mark);
      this.plain += mark;
      this.at = end;
      return true;
    }
    const inner = this.text.slice(end, close).replaceAll("\n", " ");
    const isPadded = inner.startsWith(" ") && inner.endsWith(" ") && inner.trim() !== "";
    return this.add({ type: "code", text: isPadded ? inner.slice(1, -1) : inner }, close + mark.length);
  }

  endOfCode(mark, from) {
    let at = this.text.indexOf(mark, from);
    while (at >= 0) {
      let end = at + mark.length;
      while (this.text[end] === "`") end += 1;
      if (end - at === mark.length) return at;
      at = this.text.indexOf(mark, end);
    }
    return -1;
  }

  /** `[label](url)`, and `![label](url)`, which is a link too. */
  link() {
    const isImage = this.text[this.at] === "!" && this.text[this.at + 1] === "[";
    const from = this.at + (isImage ? 2 : 1);
    if (!isImage && this.text[this.at] !== "[") return false;
    const label = this.text.slice(from, from + MAX_LABEL).indexOf("](");
    if (label < 0) return false;
    const begin = from + label + 2;
    const length = this.text.slice(begin, begin + MAX_URL).search(/[)\s]/);
    if (length < 0 || this.text[begin + length] !== ")") return false;
    const href = safeUrl(this.text.slice(begin, begin + length));
    const inside = this.text.slice(from, from + label);
    if (href === null || inside.includes("[")) return false;
    return this.add({ type: "link", href, nodes: parseInline(inside, MAX_DEPTH) }, begin + length + 1);
  }

  /** A bare `https://...`. */
  address() {
    if (this.text[this.at] !== "h" || /\w/.test(this.text[this.at - 1] ?? " ")) return false;
    const found = /^https?:\/\/[^\s<>"'`)\]]+/.exec(this.text.slice(this.at, this.at + MAX_URL));
    const raw = found?.[0].replace(/[.,;:!?*_]+$/, "");
    const href = raw ? safeUrl(raw) : null;
    if (href === null) return false;
    return this.add({ type: "link", href, nodes: [{ type: "text", text: raw }] }, this.at + raw.length);
  }

  marked() {
    for (const [mark, type] of MARKS) {
      if (!this.text.startsWith(mark, this.at)) continue;
      const close = this.endOf(mark);
      if (close < 0) continue;
      const inside = this.text.slice(this.at + mark.length, close);
      return this.add({ type, nodes: parseInline(inside, this.depth + 1) }, close + mark.length);
    }
    return false;
  }

  /** Where a mark that begins here ends: after a visible character, and for `_` between words. */
  endOf(mark) {
    const from = this.at + mark.length;
    const before = this.text[this.at - 1] ?? " ";
    if (this.unclosed.has(mark) || /\s/.test(this.text[from] ?? " ")) return -1;
    if (mark[0] === "_" && /\w/.test(before)) return -1;
    let at = this.text.indexOf(mark, from + 1);
    while (at >= 0) {
      const end = at + mark.length;
      const isWord = mark[0] === "_" && /\w/.test(this.text[end] ?? " ");
      const isLonger = mark.length === 1 && this.text[end] === mark;
      if (!/\s/.test(this.text[at - 1]) && !isWord && !isLonger) return at;
      at = this.text.indexOf(mark, isLonger ? end + 1 : end);
    }
    this.unclosed.add(mark);
    return -1;
  }
}

/** A URL of the web, or null: no `javascript:`, `data:` or relative ones. */
export function safeUrl(text) {
  try {
    const url = new URL(text);
    return ["https:", "http:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}
