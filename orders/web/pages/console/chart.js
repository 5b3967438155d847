// Charts as SVG: bars by day, and parts of a whole. Each has a description in words.

import { svg } from "./dom.js";
import { count, utcDay } from "./format.js";

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
