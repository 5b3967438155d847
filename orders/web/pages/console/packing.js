// Orders on paper and as a file: what is printed in place of the page, a packing list, slips or labels, and CSV.

import { confirm } from "./actions.js";
import { get, mustWait } from "./api.js";
import { barcode } from "./code128.js";
import { bdi, byId, el } from "./dom.js";
import { asides, celled, FIELDS, isSet, shown, title } from "./fields.js";
import { clock, counted, dated, localTime, STATUSES, ZONE } from "./format.js";
import { announce } from "./notices.js";
import { session } from "./session.js";
import { now } from "./time.js";

const COLUMNS = FIELDS.filter(({ name, column }) => column && name !== "placedAt");
// A text that a spreadsheet would take for a formula, or that the import would trim. Apostrophes before it say the same
// of what follows them, so that each text comes back whole (`spreadsheets.cell_text`).
const HARMFUL = /^'*(?:[=+\-@]|[^\S\ufeff])|[^\S\ufeff]$/;
const TIMES = FIELDS.filter(({ isTime }) => isTime);
export const AT_ONCE = 200;

let chosen = null;
// Slips or labels that are about to be printed, and the style of their paper.
let ready = null;

/** Print a packing list of these orders, returned by a function, when the page is printed; null to print the page. */
export function printing(orders) {
  chosen = orders;
}

addEventListener("beforeprint", () => {
  const orders = chosen?.() ?? [];
  byId("packing").replaceChildren(...(ready?.pages ?? (orders.length ? list(orders) : [])));
  if (ready) document.adoptedStyleSheets = [ready.style];
  ready = null;
});
addEventListener("afterprint", () => {
  byId("packing").replaceChildren();
  document.adoptedStyleSheets = [];
});

function list(orders) {
  const heads = ["Packed", ...COLUMNS.map((field) => field.titleOnPaper ?? title(field))];
  return [
    el("h1", { text: `${mark()}Packing list` }),
    el("p", { text: `${counted(orders.length, "order")}, ${dated(now())}` }),
    el("table", { class: "plain" }, el("caption", { class: "unseen", text: "Orders to pack" }),
      el("thead", {}, el("tr", {}, ...heads.map((text) => el("th", { scope: "col", text })))), ...orders.map(entry)),
  ];
}

// Numbers and dates stay on one line. What has no column, such as a note, has the width of the page.
function entry(order) {
  const below = asides(order, "td", { class: "text", colspan: COLUMNS.length }).map((each) => el("tr", {}, el("td"), each));
  return el("tbody", {}, el("tr", {},
    el("td", { class: "tick" }, el("span", { role: "img", "aria-label": "not ticked" })), ...COLUMNS.map((field) => cell(field, order))), ...below);
}

function cell(field, order) {
  const { name, onPaper } = field;
  if (name === "shipDate" && order.status !== "pending") return el("td", { text: STATUSES[order.status] });
  const value = !isSet(field, order) ? ["–"] : onPaper ? [onPaper(order[name])] : celled(field, order);
  // If an item has its number below, only the item may break.
  return el("td", { class: (name === "reference" || value.length > 1) && "text" }, ...value);
}

// Slips and labels.

const ADDRESS = "shipTo";
const ON_SLIPS = FIELDS.filter(({ name, enter }) => enter && name !== "shipDate" && name !== ADDRESS);
const KINDS = { slip: "Packing slips, one a page", half: "Packing slips, two a page", label: "Address labels" };
// Paper in millimetres, with the labels that are usual on it.
const ROLL = { columns: 1, rows: 1, top: 0, sides: 0 };
const PAPERS = {
  A4: { text: "A4", size: [210, 297], usual: { columns: 3, rows: 8, top: 0, sides: 0 } },
  letter: { text: "US Letter", size: [215.9, 279.4], usual: { columns: 3, rows: 10, top: 12.7, sides: 4.8 } },
  "100x150": { text: "Label printer, 100 × 150 mm", size: [100, 150], usual: ROLL },
  "4x6": { text: "Label printer, 4 × 6 in", size: [101.6, 152.4], usual: ROLL },
};
const NUMBERS = {
  columns: { text: "Columns", min: 1, max: 10 },
  rows: { text: "Rows", min: 1, max: 20 },
  first: { text: "First free label", min: 1, max: 200 },
  top: { text: "Top and bottom margin, mm", min: 0, max: 60, step: "any" },
  sides: { text: "Side margins, mm", min: 0, max: 40, step: "any" },
};
const SMALL_PAPER_MM = 150;
const LARGE_LABEL_MM = 90;
// From the largest letters that look well, by the label's width, to the smallest that can be read. Words break at last.
const LARGEST_PT = 20;
const SIZES_PT = [["normal", 8], ["anywhere", 5]];
const STEP_PT = 0.5;
const MOST_NAMED = 10;

/** Ask which slips or labels of orders to print, and print them. */
export async function printSlips(orders) {
  const form = question(orders);
  let pages = [];
  let refused = "";
  const check = () => {
    const wrong = wrongIn(form);
    wrong?.focus();
    if (wrong) return explained(wrong);
    const [wish, before] = [read(form), refused];
    refused = JSON.stringify(wish);
    const made = make(orders, wish);
    if (made.tooLong.length && refused !== before) {
      return `Too long for a label of this size: the address of ${named(made.tooLong, MOST_NAMED)}. Choose larger labels, or press again to print the others.`;
    }
    pages = made.pages;
    return pages.length ? "" : "There is no label to print.";
  };
  const answer = confirm({ title: `Slips and labels of ${orders.length === 1 ? named(orders) : counted(orders.length, "order")}`, body: [form], yes: "Print", no: "Don't print", check });
  byId("confirm-yes").focus();
  if (!(await answer)) return;
  const { first, others, ...paper } = read(form);
  session.paper = paper;
  ready = { pages, style: pageStyle(paper) };
  print();
}

function question(orders) {
  const kept = { kind: "slip", ...PAPERS.A4.usual, ...session.paper, first: 1 };
  const kinds = Object.entries(KINDS).map(([value, text]) =>
    el("label", { class: "check" }, el("input", { type: "radio", name: "kind", value, autocomplete: "off", checked: value === kept.kind }), text));
  const papers = Object.entries(PAPERS).map(([value, { text }]) => el("option", { value, text, selected: value === kept.paper }));
  const labels = labelSettings(orders, kept);
  const form = el("div", { class: "stack" }, el("fieldset", {}, el("legend", { text: "What to print" }), ...kinds),
    setting("paper", "Paper", el("select", {}, ...papers)), labels);
  const show = () => {
    labels.hidden = read(form).kind !== "label";
    labels.querySelector("[role=status]").textContent = wrongIn(form) ? "" : described(read(form));
  };
  control(form, "paper").addEventListener("change", ({ target }) => {
    for (const [name, value] of Object.entries(PAPERS[target.value].usual)) control(form, name).value = value;
  });
  for (const type of ["input", "change"]) form.addEventListener(type, show);
  show();
  return form;
}

function labelSettings(orders, kept) {
  const without = orders.filter((order) => !order[ADDRESS]);
  const numbers = Object.entries(NUMBERS).map(([name, { text, ...range }]) =>
    setting(name, text, el("input", { type: "number", required: true, value: kept[name], ...range })));
  const others = el("input", { type: "checkbox", name: "others", autocomplete: "off", checked: without.length === orders.length });
  return el("fieldset", {}, el("legend", { text: "Labels" }), el("div", { class: "grid" }, ...numbers), el("p", { class: "hint", role: "status" }),
    without.length ? el("p", { class: "notice many", text: `No address: ${named(without)}.` }) : null,
    without.length ? el("label", { class: "check" }, others, "Print these, too, with number and reference") : null);
}

function setting(name, text, made) {
  for (const [attribute, value] of Object.entries({ id: `print-${name}`, name, autocomplete: "off" })) made.setAttribute(attribute, value);
  return el("div", { class: "field" }, el("label", { for: made.id, text }), made);
}

function control(form, name) {
  return form.querySelector(`[name=${name}]`);
}

function read(form) {
  const numbers = Object.keys(NUMBERS).map((name) => [name, control(form, name).valueAsNumber]);
  const kind = form.querySelector("[name=kind]:checked")?.value ?? "slip";
  return { kind, paper: control(form, "paper").value, others: control(form, "others")?.checked ?? false, ...Object.fromEntries(numbers) };
}

// Returns the first setting of labels that is no number or out of range, which is marked.
function wrongIn(form) {
  const inputs = read(form).kind === "label" ? Object.keys(NUMBERS).map((name) => control(form, name)) : [];
  for (const each of inputs) each.setAttribute("aria-invalid", `${!each.validity.valid}`);
  return inputs.find(({ validity }) => !validity.valid);
}

function explained({ name }) {
  const { text, min, max } = NUMBERS[name];
  return `${text}: enter a number from ${min} to ${max}.`;
}

function described(wish) {
  const [width, height] = labelSize(wish).map((mm) => Math.floor(mm * 10) / 10);
  return `${counted(wish.columns * wish.rows, "label")} a sheet, ${width} × ${height} mm each.`;
}

function named(orders, most = orders.length) {
  const more = orders.length > most ? ` and ${orders.length - most} more` : "";
  return `order${orders.length === 1 ? "" : "s"} ${orders.slice(0, most).map(({ id }) => id).join(", ")}${more}`;
}

function labelSize({ paper, columns, rows, top, sides }) {
  const [width, height] = PAPERS[paper].size;
  return [(width - 2 * sides) / columns, (height - 2 * top) / rows];
}

// The margin of a page in millimetres. Labels have their own.
function margin({ kind, paper }) {
  return kind === "label" ? 0 : PAPERS[paper].size[0] < SMALL_PAPER_MM ? 5 : 12;
}

// The size of paper can't depend on a choice in a style sheet of the page's own.
function pageStyle(wish) {
  const [width, height] = PAPERS[wish.paper].size;
  const style = new CSSStyleSheet();
  style.replaceSync(`@page { size: ${width}mm ${height}mm; margin: ${margin(wish)}mm; }`);
  return style;
}

// Returns the pages, and the orders that are left out as their addresses don't fit.
function make(orders, wish) {
  if (wish.kind !== "label") return { pages: orders.map((order) => slip(order, wish)), tooLong: [] };
  const some = orders.filter((order) => wish.others || order[ADDRESS]);
  const labels = some.map((order) => label(order, wish));
  const wrong = new Set(fit(sheets(labels, wish), labels, Math.min(LARGEST_PT, Math.round(labelSize(wish)[0] / 6))));
  return { pages: sheets(labels.filter((each) => !wrong.has(each)), wish), tooLong: some.filter((_, index) => wrong.has(labels[index])) };
}

function slip(order, wish) {
  const there = ON_SLIPS.filter((field) => isSet(field, order));
  const facts = there.map((field) => el("div", {}, el("dt", { text: title(field) }), el("dd", {}, shown(field, order))));
  const drawn = el("section", { class: `slip ${wish.kind}` },
    el("header", {}, el("div", {}, el("h1", { text: nameOf(order) }), el("p", { text: `Placed ${dated(order.placedAt)}` })), barcode(order.id, 3)),
    el("div", { class: "parts" }, order[ADDRESS] ? el("p", { class: "address", text: order[ADDRESS] }) : null, el("dl", { class: "facts" }, ...facts)));
  // Cut in the middle of the page, both have a margin on all sides.
  if (wish.kind === "half") {
    drawn.style.minHeight = `${PAPERS[wish.paper].size[1] / 2 - 2 * margin(wish) - 0.1}mm`;
    drawn.style.marginBottom = `${2 * margin(wish)}mm`;
  }
  return drawn;
}

// On all that is printed in test mode.
function mark() {
  return session.isTest ? "TEST: " : "";
}

// Nobody packs a cancelled order because its slip lies there.
function nameOf({ id, status }) {
  return `${mark()}Order ${id}${status === "cancelled" ? `, ${STATUSES[status].toLowerCase()}` : ""}`;
}

function label(order, wish) {
  const address = order[ADDRESS];
  const [width] = labelSize(wish);
  return el("div", {}, el("p", { class: "address", text: address ?? order.reference ?? nameOf(order) }),
    el("div", { class: "strip" }, barcode(order.id, width < LARGE_LABEL_MM ? 2 : 3),
      el("p", {}, el("b", { text: nameOf(order) }), el("br"), address && order.reference ? bdi(order.reference) : "")));
}

// Lay out labels, from the first free one on.
function sheets(labels, wish) {
  const { paper, columns, rows, top, sides, first } = wish;
  const [width, height] = labelSize(wish);
  const used = labels.length && (first - 1) % (columns * rows);
  const cells = [...Array.from({ length: used }, () => el("div")), ...labels.map((each) => el("div", { class: "label" }, each))];
  const pages = [];
  while (cells.length) {
    const sheet = el("div", { class: "sheet" }, ...cells.splice(0, columns * rows));
    sheet.style.gridTemplate = `repeat(${rows}, ${height}mm) / repeat(${columns}, ${width}mm)`;
    sheet.style.padding = `${top}mm ${sides}mm 0`;
    sheet.style.height = `${PAPERS[paper].size[1] - 0.1}mm`;
    pages.push(sheet);
  }
  return pages;
}

// Find the largest letters with which each label fits its place. Returns those that fit with none.
function fit(pages, labels, largest) {
  const packing = byId("packing");
  packing.classList.add("measured");
  packing.replaceChildren(...pages);
  let rest = labels;
  for (const [wrap, least] of SIZES_PT) {
    for (let size = largest; size >= least && rest.length; size -= STEP_PT) {
      for (const { style } of rest) [style.fontSize, style.overflowWrap] = [`${size}pt`, wrap];
      rest = rest.filter((each) => each.scrollHeight > each.clientHeight || each.scrollWidth > each.clientWidth);
    }
  }
  packing.replaceChildren();
  packing.classList.remove("measured");
  return rest;
}

// Files.

/** Save orders as a CSV file, with times as spreadsheets know them, and what those lack beside them. */
export function save(orders) {
  const names = [...FIELDS.map(({ name, isTime }) => (isTime ? `${name} (${ZONE})` : name)), "milliseconds"];
  const lines = [names, ...orders.map((order) => [...FIELDS.map(({ name, isTime }) => (isTime ? localTime : harmless)(order[name] ?? "")), milliseconds(order)])];
  const text = lines.map((line) => line.map(quoted).join(",")).join("\r\n");
  const address = URL.createObjectURL(new Blob(["\ufeff", text, "\r\n"], { type: "text/csv" }));
  el("a", { href: address, download: "orders.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  announce(`${counted(orders.length, "order")} saved as orders.csv.`);
}

function milliseconds(order) {
  const all = TIMES.map(({ name }) => (order[name] ? new Date(order[name]).getMilliseconds() : 0));
  return all.some(Boolean) ? all.join(" ") : "";
}

function harmless(value) {
  return typeof value === "string" && HARMFUL.test(value) ? `'${value}` : `${value}`;
}

function quoted(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Read all pages of a list, whose paths `path` returns by cursor; wait where a limit is met. */
export async function readAll(path, signal) {
  const orders = [];
  let after = "";
  do {
    while (mustWait()) {
      announce(`The request limit is reached. This continues at ${clock(now() + 1000 * mustWait())}.`);
      await new Promise((resolve) => setTimeout(resolve, 1000 * mustWait()));
    }
    signal.throwIfAborted();
    try {
      const page = await get(path(after), { signal });
      orders.push(...page.orders);
      after = page.next;
    } catch (failure) {
      if (failure.status !== 429) throw failure;
    }
    announce(`${counted(orders.length, "order")} read…`);
  } while (after);
  return orders;
}
