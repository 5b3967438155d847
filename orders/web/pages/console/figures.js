// Orders by status and by day, as charts and as a table.

import { get } from "./api.js";
import { bars, parts, scaleEnd } from "./chart.js";
import { el } from "./dom.js";
import { count, counted, STATUSES, utcDay } from "./format.js";
import { failurePanel } from "./notices.js";
import { hash } from "./router.js";

const RANGES = ["7", "30", "90"];
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const COUNTED = { placed: "Placed", shipped: "Shipped", cancelled: "Cancelled" };

/** Make the view. */
export function figuresView(root, shop) {
  const ranges = el("nav", { class: "segments", "aria-label": "Period" });
  const shown = el("div", { class: "figures" });
  root.replaceChildren(
    el("div", { class: "head" }, el("h1", { tabindex: "-1", text: "Figures" }), ranges), shown);
  let loading = new AbortController();
  let [range, stats, isOpen] = ["30", null, false];
  const drawing = new ResizeObserver(() => stats && draw());
  drawing.observe(root);

  function update({ params }) {
    range = RANGES.includes(params.get("days")) ? params.get("days") : "30";
    const focused = [...ranges.children].indexOf(document.activeElement);
    ranges.replaceChildren(...RANGES.map((days) => el("a", {
      href: hash("figures", { days }), text: `${days} days`, "aria-current": days === range && "page",
    })));
    ranges.children[focused]?.focus();
    return load();
  }

  async function load() {
    loading.abort();
    loading = new AbortController();
    try {
      stats = await get(`store/stats?days=${range}&zone=${encodeURIComponent(zone)}`, { signal: loading.signal });
      shop.updateFigures(stats);
      draw();
    } catch (failure) {
      if (failure.name !== "AbortError") shown.replaceChildren(failurePanel(failure, load));
    }
  }

  function draw() {
    isOpen = shown.querySelector("details")?.open ?? isOpen;
    const width = Math.max(240, Math.floor(root.clientWidth - 2 * padding()));
    const focused = shown.contains(document.activeElement);
    shown.replaceChildren(byStatus(stats.byStatus, width), byDay(stats.days, width), table(stats.days, isOpen));
    if (focused) shown.querySelector("summary").focus();
  }

  function padding() {
    return root.clientWidth > 640 ? 24 : 16;
  }

  const dispose = () => {
    loading.abort();
    drawing.disconnect();
  };
  return { title: "Figures", update, changed: () => load(), dispose };
}

function byStatus(counts, width) {
  const all = Object.entries(STATUSES).map(([status]) => [status, counts[status]]);
  const total = all.reduce((sum, [, value]) => sum + value, 0);
  const description = all.map(([status, value]) => `${STATUSES[status]}: ${count(value)}`).join(", ");
  const key = all.map(([status, value]) => el("li", { class: status },
    el("a", { href: hash("orders", { status }) }, STATUSES[status]), el("b", { text: count(value) })));
  return el("section", { class: "panel", "aria-labelledby": "by-status" },
    el("h2", { id: "by-status", text: total ? `All ${counted(total, "order")}, by status` : "No orders yet" }),
    total ? parts({ counts: all, width, title: "Orders by status", description: `${description}.` }) : null,
    el("ul", { class: "legend" }, ...key));
}

function byDay(days, width) {
  const most = scaleEnd(Math.max(...days.flatMap((day) => Object.keys(COUNTED).map((name) => day[name]))));
  const charts = Object.entries(COUNTED).map(([name, word]) => {
    const total = days.reduce((sum, day) => sum + day[name], 0);
    const best = days.reduce((high, day) => (day[name] > high[name] ? day : high));
    const description = total
      ? `${count(total)} in ${days.length} days. Most on ${utcDay(best.date)}: ${count(best[name])}.`
      : `None in ${days.length} days.`;
    return el("div", { class: "chart" },
      el("h3", { class: name }, word, " ", el("b", { text: count(total) })),
      bars({ days, name, most, width, title: `${word}, by day`, description }));
  });
  return el("section", { class: "panel", "aria-labelledby": "by-day" },
    el("h2", { id: "by-day", text: `Last ${days.length} days` }), ...charts,
    el("p", { class: "hint", text: `Days are those of ${zone.replaceAll("_", " ")}. Today is still in progress.` }));
}

function table(days, isOpen) {
  const head = ["Day", ...Object.values(COUNTED)].map((name) => el("th", { scope: "col", text: name }));
  const rows = [...days].reverse().map((day) => el("tr", {},
    el("th", { scope: "row", text: utcDay(day.date) }),
    ...Object.keys(COUNTED).map((name) => el("td", { text: count(day[name]) }))));
  return el("details", { class: "panel", open: isOpen },
    el("summary", { text: "Show as a table" }),
    el("table", { class: "plain" }, el("caption", { class: "unseen", text: "Orders by day" }),
      el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
}
