// Builds DOM nodes. No function here or elsewhere in the page turns text into HTML.

/**
 * An element. `props` are attributes; `class`, `text` and `on` (listeners) are special.
 * A value of null, undefined or false leaves the attribute out. Children are nodes or texts.
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  setProps(element, props);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An SVG element, made like those of `h`. */
export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setProps(element, props);
  element.append(...children.flat());
  return element;
}

function setProps(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.setAttribute("class", value);
    else if (name === "text") element.textContent = value;
    else if (name === "on") {
      for (const [type, listener] of Object.entries(value)) element.addEventListener(type, listener);
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** The element with an id. It must exist. */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`no element ${id}`);
  return element;
}

/** Change a text only if it differs, so that a screen reader and a selection see no change. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set or remove an attribute, only if it differs. */
export function setAttr(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** A bar that is full at a share of 1. Without a label it is decoration beside a number. */
export class Bar {
  constructor(label = "") {
    this.value = svg("rect", { class: "full", width: 0, height: 1 });
    const named = { role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 1 };
    const props = label ? named : { "aria-hidden": "true" };
    this.element = svg("svg", { class: "bar", viewBox: "0 0 1 1", preserveAspectRatio: "none", ...props }, this.value);
    this.set(0);
  }

  set(share) {
    setAttr(this.value, "width", share.toFixed(4));
    if (this.element.hasAttribute("role")) setAttr(this.element, "aria-valuenow", share.toFixed(4));
    return this;
  }
}

/** A button that copies what `text()` returns. */
export function copyButton(label, text) {
  const button = h("button", { type: "button", class: "quiet copy", "aria-label": label }, "Copy");
  button.addEventListener("click", async () => {
    const done = await copied(text());
    button.textContent = done ? "Copied" : "Not allowed";
    announce(done ? "Copied." : "The browser does not allow copying here.");
    window.setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text); // absent on plain HTTP but for loopback
    return true;
  } catch {
    return false;
  }
}

/** Tell users of screen readers something, once. */
export function announce(text) {
  byId("status").textContent = text;
}
