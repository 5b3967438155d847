// Makes elements. Text is always inserted as text: nothing in the console parses markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: `text` is its text, `on` its listeners, everything else its attributes. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Make an icon from index.html, hidden from screen readers. */
export function icon(name) {
  return svg("svg", { "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));
}

/**
 * Make a link to /docs. That page runs third-party code on this origin, so it gets a tab of its own,
 * which has no access to this tab's storage and the key in it.
 */
export function docsLink() {
  const attributes = { href: "docs", target: "_blank", rel: "noopener" };
  return el("a", { class: "button", ...attributes }, "API documentation", el("span", { class: "unseen", text: ", in a new tab" }));
}

/** Make an element with a customer's text, whatever direction it is written in. */
export function bdi(text) {
  return el("bdi", { text });
}

/** Find an element of index.html by its id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Focus an element if nothing has the focus, as after the button that had it was disabled. */
export function refocus(element) {
  if (!document.activeElement || document.activeElement.matches("body, dialog")) element.focus();
}

/** Show a text in an element; hide the element if the text is empty. */
export function setText(element, text) {
  element.textContent = text || "";
  element.hidden = !text;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") {
      for (const [event, listener] of Object.entries(value)) {
        element.addEventListener(event, listener);
      }
    } else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
