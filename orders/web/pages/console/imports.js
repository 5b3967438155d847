// Importing a file of orders: first a rehearsal, then all of them or none.

import { change, newName, NoAnswer } from "./api.js";
import { bdi, el, refocus, setText } from "./dom.js";
import { FIELDS } from "./fields.js";
import { choice, field } from "./forms.js";
import { count, counted, dated, ZONE } from "./format.js";
import { announce, describe, faults } from "./notices.js";

const MOST_BYTES = 16 * 1024 * 1024;
// The bytes around the files in a request.
const FRAME_BYTES = 4096;
const SECONDS_TO_IMPORT = 600;
const COMMAND = "flask orders import FILE";
const SHOPS = [["", "A table, such as this page saves"], ["shopify", "Shopify's export"], ["woocommerce", "WooCommerce's export"]];
const DATES = [["", "Year first, or unmistakable"], ["dmy", "Day first: 31/12/2026"], ["mdy", "Month first: 12/31/2026"], ["ymd", "Year first: 2026-12-31"]];
const LABELS = new Map([["zone", "The time zone"], ["file", "The file"], ["pets", "The table of pets"]]);
const UNREADABLE = "The file has changed since you chose it. Choose it again.";
const TOO_LARGE = `Together the files are larger than 16 MiB, which is too much for this page. Your administrator can import them where the service runs: ${COMMAND}`;
const LOST = "The connection was lost, so we can't tell whether the orders were imported. Import them again: none is imported twice.";
const BUSY = "The service is busy, maybe with another import. Try again in a minute.";

/** Make the view. */
export function view(root, shop) {
  const file = el("input", { id: "import-file", type: "file", accept: ".csv,.tsv,.txt,.jsonl" });
  const pets = el("input", { id: "import-pets", type: "file", accept: ".csv,.tsv,.txt,.jsonl" });
  const from = choice("import-shop", SHOPS);
  const dates = choice("import-dates", DATES);
  const zone = el("input", { id: "import-zone", value: ZONE, autocomplete: "off", spellcheck: "false" });
  const ignore = el("input", { id: "import-ignore", type: "checkbox", autocomplete: "off" });
  const notice = el("p", { class: "notice bad", role: "alert", hidden: true });
  const check = el("button", { class: "button main", type: "submit", text: "Check" });
  const work = el("div", { role: "status" });
  const result = el("div", { class: "stack" });
  const form = el("form", { class: "panel place", novalidate: true },
    notice, field("File of orders", file, "CSV, TSV or JSON Lines, up to 16 MiB."), field("It is", from), field("Dates in it", dates),
    field("Time zone of its times", zone, "Of times without one, such as Europe/Berlin."), field("Table of pets", pets, "Optional: a pet number for each SKU or name."),
    el("label", { class: "check" }, ignore, "Ignore columns that aren't an order's"), el("div", { class: "buttons" }, check));
  root.replaceChildren(el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "Import" })), form, work, result);
  let isBusy = false;
  // A check counts only for what was checked.
  form.addEventListener("input", () => result.replaceChildren());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!isBusy) rehearse();
  });

  async function rehearse() {
    setText(notice, "");
    result.replaceChildren();
    const chosen = [["file", file], ["pets", pets]].flatMap(([name, { files }]) => [...files].map((one) => [name, one]));
    if (!file.files.length) return fail("Choose a file.", file);
    if (chosen.reduce((sum, [, { size }]) => sum + size, FRAME_BYTES) > MOST_BYTES) return fail(TOO_LARGE, file);
    const query = asked();
    const parts = await read(chosen);
    if (!parts) return fail(UNREADABLE, file);
    const report = await send(parts, { ...query, dryRun: "true" }, newName(), "Checking the file…");
    if (report) show(report, parts, query);
    return undefined;
  }

  function asked() {
    const all = { shop: from.value, dates: dates.value, zone: zone.value.trim(), ignoreOthers: ignore.checked ? "true" : "" };
    return Object.fromEntries(Object.entries(all).filter(([, value]) => value));
  }

  // Resolves to the report, or null where there is none, which is explained.
  async function send(parts, query, name, text) {
    isBusy = true;
    for (const each of root.querySelectorAll("form :is(input, select, button), .buttons button")) each.disabled = true;
    work.replaceChildren(el("label", { class: "field" }, text, el("progress", {})));
    const body = new FormData();
    for (const [part, content, title] of parts) body.append(part, content, title);
    try {
      return (await change("POST", `imports?${new URLSearchParams(query)}`, body, { name, seconds: SECONDS_TO_IMPORT })).data;
    } catch (failure) {
      if (failure.name !== "AbortError") explain(failure, query.dryRun);
      return null;
    } finally {
      isBusy = false;
      work.replaceChildren();
      for (const each of root.querySelectorAll(":disabled")) each.disabled = false;
      refocus(notice.hidden ? root.querySelector("h1") : check);
    }
  }

  function explain(failure, isRehearsal) {
    const [[name, fault] = []] = Object.entries(failure.status === 422 ? faults(failure, LABELS) : {});
    const text = failure.status === 413 ? TOO_LARGE
      : failure.status === 503 ? BUSY
      : name ? `${LABELS.get(name)} ${fault}.`
      : failure.status === 422 ? "The orders no longer fit what is in the shop. Check the file again."
      : failure instanceof NoAnswer && !isRehearsal ? LOST : describe(failure);
    if (!root.isConnected) announce(`Import: ${text}`);
    setText(notice, text);
    notice.scrollIntoView({ block: "nearest" });
  }

  function fail(text, at) {
    setText(notice, text);
    at.focus();
  }

  function show({ orders, first = [], faults: wrong = [], faultCount = 0, remarks = [] }, parts, query) {
    // Sent again after a lost answer, they are imported once.
    const name = newName();
    const isGood = !faultCount && orders > 0;
    const heading = el("h2", { tabindex: "-1", text: faultCount ? `${counted(faultCount, "fault")}: nothing can be imported` : isGood ? `${counted(orders, "order")} can be imported` : "There is no order to import" });
    const go = el("button", { class: "button main", type: "button", text: `Import ${counted(orders, "order")}`, on: { click: () => carryOut(parts, query, name) } });
    result.replaceChildren(
      heading,
      wrong.length ? el("div", { class: "panel stack" },
        el("p", { text: "Correct these in the file, choose it again, and check it again." }),
        el("ul", { class: "many stack", tabindex: "0", "aria-label": "Faults" }, ...wrong.map(fault)),
        wrong.length < faultCount ? el("p", { class: "hint", text: `These are the first ${count(wrong.length)}.` }) : null) : "",
      remarks.length ? el("ul", { class: "notice" }, ...remarks.map(({ message, rows }) => el("li", { text: `${message} (${counted(rows, "row")})` }))) : "",
      first.length ? el("p", { class: "soft", text: "The first, as they would be:" }) : "",
      el("ul", { class: "two" }, ...first.map(order)),
      isGood ? el("div", { class: "buttons" }, go) : "");
    heading.focus();
  }

  async function carryOut(parts, query, name) {
    if (isBusy) return;
    setText(notice, "");
    const report = await send(parts, query, name, "Importing…");
    if (!report) return;
    form.reset();
    const text = `${counted(report.orders, "order")} imported.`;
    announce(text, { isShown: root.isConnected });
    result.replaceChildren(el("div", { class: "panel stack" }, el("h2", { tabindex: "-1", text }), el("div", { class: "buttons" }, el("a", { class: "button", href: "#/orders", text: "Show the orders" }))));
    result.querySelector("h2").focus();
    shop.changedHere();
  }

  return { title: "Import", update() {}, changed() {}, dispose() {} };
}

// The file as it was checked, so that nothing else is imported. Null if it can't be read any more.
async function read(chosen) {
  try {
    return await Promise.all(chosen.map(async ([name, one]) => [name, new Blob([await one.arrayBuffer()]), one.name]));
  } catch {
    return null;
  }
}

function fault({ line, column, message }) {
  return el("li", {}, el("b", {}, `Line ${count(line)}`, ...(column ? [", ", bdi(column)] : [])), ": ", bdi(message.replaceAll("ignoreOthers", "“Ignore columns”")));
}

function order({ line, ...values }) {
  const shown = Object.entries(values).filter(([, value]) => value !== null && value !== "").map(([name, value]) => {
    const { label = name, isTime } = FIELDS.find((each) => each.name === name) ?? {};
    return el("div", {}, el("dt", { text: label === "status" ? "Status" : label }), el("dd", { class: "lines" }, bdi(isTime ? dated(value) : String(value))));
  });
  return el("li", { class: "panel" }, el("h3", { text: `Line ${count(line)}` }), el("dl", { class: "facts" }, ...shown));
}
