// Elements from plain values. Text goes in as text: nothing here, or anywhere, reads markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: `text` is its text, `on` its listeners, everything else its attributes. */
export function el(tag, given = {}, ...children) {
  return fill(document.createElement(tag), given, children);
}

/** Make an element of a picture. */
export function svg(tag, given = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), given, children);
}

/** Make one of the pictures that index.html has; it says nothing to screen readers. */
export function icon(name) {
  return svg("svg", { "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));
}

/**
 * Make the way to /docs. Its page is other people's code at this address: it gets a tab of its own,
 * which does not know what this one keeps, the key above all.
 */
export function docsLink() {
  const way = { href: "docs", target: "_blank", rel: "noopener" };
  return el("a", { class: "button", ...way }, "For programmers", el("span", { class: "unseen", text: ", in a new tab" }));
}

/** Find an element of index.html by its id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Show a text in an element that is hidden while it has none. */
export function tell(element, text) {
  element.textContent = text || "";
  element.hidden = !text;
}

function fill(element, given, children) {
  for (const [name, value] of Object.entries(given)) {
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
