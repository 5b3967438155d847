// Code 128 (ISO/IEC 15417): a number as bars.

import { svg } from "./dom.js";

// The widths of each symbol's bars and spaces, in modules, by its value.
const SYMBOLS = (
  "212222222122222221121223121322131222122213122312132212221213221312231212112232122132122231113222123122123221223211" +
  "221132221231213212223112312131311222321122321221312212322112322211212123212321232121111323131123131321112313132113" +
  "132311211313231113231311112133112331132131113123113321133121313121211331231131213113213311213131311123311321331121" +
  "312113312311332111314111221411431111111224111422121124121421141122141221112214112412122114122411142112142211241211" +
  "221114413111241112134111111242121142121241114212124112124211411212421112421211212141214121412121111143111341131141" +
  "114113114311411113411311113141114131311141411131211412211214211232").match(/.{6}/g);
const STOP = "2331112";
const [PAIRS, START_DIGIT, START_PAIRS] = [99, 104, 105];
const DIGIT_0 = 16;
const CHECK = 103;
const QUIET = 10;
const DOTS_PER_INCH = 203;

/**
 * Draw a number, with the blank space it needs on both sides. A module is so many whole `dots` of the usual label
 * printer wide: 2 are a quarter of a millimetre. The height is the style sheet's.
 */
export function barcode(number, dots) {
  const widths = [...symbols(`${number}`).map((value) => SYMBOLS[value]), STOP].join("");
  let x = QUIET;
  let bars = "";
  [...widths].forEach((width, index) => {
    if (index % 2 === 0) bars += `M${x} 0h${width}v1h-${width}z`;
    x += Number(width);
  });
  const drawn = svg("svg", { class: "barcode", viewBox: `0 0 ${x + QUIET} 1`, preserveAspectRatio: "none", "shape-rendering": "crispEdges", "aria-hidden": "true" },
    svg("path", { d: bars }));
  drawn.style.width = `${((x + QUIET) * dots) / DOTS_PER_INCH}in`;
  return drawn;
}

// Digits in pairs, after a single one where their number is odd; then the check symbol.
function symbols(digits) {
  const odd = digits.length % 2;
  const pairs = (digits.slice(odd).match(/../g) ?? []).map(Number);
  const values = odd ? [START_DIGIT, DIGIT_0 + Number(digits[0])] : [START_PAIRS];
  if (odd && pairs.length) values.push(PAIRS);
  values.push(...pairs);
  return [...values, values.reduce((sum, value, index) => sum + value * (index || 1)) % CHECK];
}
