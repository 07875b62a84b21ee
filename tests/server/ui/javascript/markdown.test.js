import assert from "node:assert/strict";
import { test } from "node:test";

import { parse, parseInline, safeUrl } from "../static/lib/markdown.js";

const types = (text) => parse(text).map(({ type }) => type);

test("blocks", () => {
  const text = "# Title\n\nOne\ntwo\n\n- a\n- b\n\n1. x\n2. y\n\n> q\n\n---\n\n```py\nprint(1)\n```\n\n|a|b|\n|-|-|\n|1|2|";
  assert.deepEqual(types(text), ["heading", "paragraph", "list", "list", "quote", "rule", "code", "table"]);
  const [heading, paragraph, bullets, numbers, , , code, table] = parse(text);
  assert.equal(heading.text, "Title");
  assert.equal(paragraph.text, "One\ntwo");
  assert.equal(bullets.items.length, 2);
  assert.equal(bullets.start, null);
  assert.equal(numbers.start, 1);
  assert.deepEqual([code.language, code.text], ["py", "print(1)"]);
  assert.deepEqual([table.head, table.rows], [["a", "b"], [["1", "2"]]]);
});

test("a list goes on after an empty line, and nests", () => {
  const [list] = parse("- a\n\n- b\n  - c\n\n  d");
  assert.equal(list.items.length, 2);
  assert.deepEqual(list.items[1].map(({ type }) => type), ["paragraph", "list", "paragraph"]);
});

test("code without an end holds the rest", () => {
  const [code] = parse("```\n<b>\n# no heading");
  assert.equal(code.text, "<b>\n# no heading");
});

test("every prefix of a text is parsed, and the blocks cover its lines", () => {
  const text = "# T\n\n- a\n  - **b**\n\n```js\nx\n```\n> q\n> r\n\n| a | b |\n|---|---|\n| 1 | 2 |\nend *of* `it`";
  for (let end = 0; end <= text.length; end += 1) {
    const part = text.slice(0, end);
    const covered = parse(part).map(({ raw }) => raw).join("").replace(/\s/g, "");
    assert.equal(covered, part.replace(/\s/g, ""));
  }
});

test("inline marks", () => {
  const found = parseInline("a **b *c*** `d*` _e_ ~~f~~ g_h_i \\*j");
  assert.deepEqual(found.map(({ type }) => type), [
    "text", "strong", "text", "code", "text", "em", "text", "del", "text",
  ]);
  assert.equal(found.at(-1).text, " g_h_i *j");
});

test("marks without an end are text", () => {
  for (const text of ["**a", "a * b * c", "`x", "[a](", "_", "2 * 3 * 4"]) {
    const found = parseInline(text);
    assert.deepEqual(found.map(({ type }) => type), ["text"]);
    assert.equal(found[0].text, text);
  }
});

test("tags are text", () => {
  const text = '<img src=x onerror=alert(1)> <script>alert(1)</script> &lt;';
  assert.deepEqual(parseInline(text), [{ type: "text", text }]);
});

test("links are of the web only", () => {
  const href = (text) => parseInline(text).find(({ type }) => type === "link")?.href;
  assert.equal(href("[a](https://x.example/y)"), "https://x.example/y");
  assert.equal(href("see https://x.example/y."), "https://x.example/y");
  assert.equal(href("![a](https://x.example/y.png)"), "https://x.example/y.png");
  for (const url of [
    "javascript:alert(1)", "JaVaScRiPt:alert(1)", " javascript:alert(1)", "java\tscript:alert(1)", "data:text/html,x",
    "vbscript:x", "file:///etc/passwd", "//x.example", "/path", "blob:https://x.example/y", "\u0001javascript:x",
  ]) {
    assert.equal(safeUrl(url), null, url);
    assert.ok((href(`[a](${url})`) ?? "https:").startsWith("https:"), url);
  }
});

test("hostile texts take little time", () => {
  const n = 10_000; // what backtracks takes minutes at this length
  const texts = [
    "*".repeat(n), "_a".repeat(n), "**a ".repeat(n), "[".repeat(n), "[a](".repeat(n), "`".repeat(n), "> ".repeat(n),
    "- ".repeat(n), "|".repeat(n) + "\n" + "|-".repeat(n), "https://".repeat(n), "![a](b".repeat(n), "~~a".repeat(n),
    Array.from({ length: 200 }, (_, i) => "`".repeat(i)).join("x"), "#".repeat(n), "-".repeat(n), " ".repeat(n) + "-",
    "a\n".repeat(n), "- a\n".repeat(n), "> a\n".repeat(n), "|a\n".repeat(n), "*a\n".repeat(n), "- \n\n".repeat(n),
    "``` `".repeat(n), "1) ".repeat(n), "_ ".repeat(n), "*a_".repeat(n),
  ];
  for (const text of texts) {
    const begin = performance.now();
    const walk = (blocks) => blocks.forEach((block) => {
      if (block.text !== undefined) parseInline(block.text);
      walk(block.blocks ?? []);
      (block.items ?? []).forEach(walk);
    });
    walk(parse(text));
    const took = performance.now() - begin;
    assert.ok(took < 10_000, `${JSON.stringify(text.slice(0, 12))} took ${took} ms`);
  }
});
