// Figures by day and by status, as charts and a table.

import { get } from "./api.js";
import { el, svg } from "./dom.js";
import { count, counted, STATUSES, utcDay, ZONE } from "./format.js";
import { failurePanel } from "./notices.js";
import { hash } from "./router.js";

const RANGES = ["7", "30", "90"];
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const COUNTED = { placed: "Placed", shipped: "Shipped", cancelled: "Cancelled" };

/** Make the view. */
export function view(root, shop) {
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
      stats = await get(`store/stats?days=${range}&zone=${encodeURIComponent(ZONE)}`, { signal: loading.signal });
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
    el("p", { class: "hint", text: `Days are those of ${ZONE.replaceAll("_", " ")}. Today is still in progress.` }));
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

// Charts as SVG: bars by day, and parts of a whole. Each has a description in words.

const HEIGHT = 132;
const TOP = 12;
const LEFT = 40;
const BOTTOM = 24;
let pictures = 0;

/** Draw a bar for each day. `most` is the end of the scale, the same for charts to be compared. */
export function bars({ days, name, most, width, title, description }) {
  const [plot, base] = [width - LEFT, HEIGHT - BOTTOM];
  const step = plot / days.length;
  const thick = Math.max(1.5, Math.min(28, step * 0.72));
  const high = (value) => (value / most) * (base - TOP);
  const drawn = days.map((day, index) => {
    const height = day[name] ? Math.max(2, high(day[name])) : 0;
    const x = LEFT + index * step + (step - thick) / 2;
    return svg("g", {},
      svg("title", { text: `${utcDay(day.date)}: ${count(day[name])}` }),
      svg("rect", { class: "reach", x: LEFT + index * step, y: TOP, width: step, height: base - TOP }),
      svg("rect", { class: name, x, y: base - height, width: thick, height, rx: Math.min(3, thick / 3) }));
  });
  return picture(title, description, width, HEIGHT,
    ...[most, most / 2].flatMap((value) => gridLine(value, base - high(value), width)),
    ...drawn,
    svg("line", { class: "base", x1: LEFT, x2: width, y1: base, y2: base }),
    ...dates(days, step, base, width));
}

/** Draw the parts of a whole as segments of one bar. */
export function parts({ counts, width, title, description }) {
  const [total, gap] = [counts.reduce((sum, [, value]) => sum + value, 0), 3];
  const there = counts.filter(([, value]) => value);
  // Small parts get a visible width, at the expense of large ones.
  const least = 6;
  const free = width - gap * Math.max(0, there.length - 1) - least * there.length;
  let x = 0;
  const drawn = there.map(([status, value]) => {
    const long = least + (free * value) / total;
    const part = svg("rect", { class: status, x, y: 0, width: long, height: 28, rx: 5 }, svg("title", { text: count(value) }));
    x += long + gap;
    return part;
  });
  return picture(title, description, width, 28, ...drawn);
}

/** Return the end of a scale for values up to this: 4, 6, 8, 10, 15, 20, 30, … */
export function scaleEnd(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  const step = [1, 1.5, 2, 3, 4, 6, 8, 10].find((each) => value <= each * power && Number.isInteger((each * power) / 2)) ?? 10;
  return Math.max(4, step * power);
}

function picture(title, description, width, height, ...children) {
  const id = `picture-${(pictures += 1)}`;
  return svg("svg", {
    role: "img", "aria-labelledby": `${id}-title ${id}-desc`,
    viewBox: `0 0 ${width} ${height}`, width, height, class: "picture",
  }, svg("title", { id: `${id}-title`, text: title }), svg("desc", { id: `${id}-desc`, text: description }), ...children);
}

function gridLine(value, y, width) {
  return [
    svg("line", { class: "grid-line", x1: LEFT, x2: width, y1: y, y2: y }),
    svg("text", { class: "scale", x: LEFT - 8, y: y + 4, "text-anchor": "end", text: count(value) }),
  ];
}

function dates(days, step, base, width) {
  const every = Math.max(1, Math.ceil(days.length / Math.max(2, Math.floor(width / 130))));
  return days.flatMap((day, index) => {
    if ((days.length - 1 - index) % every) return [];
    const x = LEFT + (index + 0.5) * step;
    const isLast = index === days.length - 1;
    const crowded = isLast && step < 60;
    return [svg("text", {
      class: "scale", x: crowded ? width : x, y: base + 17,
      "text-anchor": crowded ? "end" : x < LEFT + 36 ? "start" : "middle", text: isLast ? "Today" : utcDay(day.date),
    })];
  });
}
