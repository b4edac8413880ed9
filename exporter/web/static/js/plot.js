/**
 * Prepares figures for Plotly with the colours of the page and the reader's time zone, which the server does not know.
 * Plotly itself is large, so it is loaded for the first figure.
 */

const SMALL = 11;
// Heights in pixels: of the plot, of one panel, of the time labels, and of a line of the legend.
const PLOT_HEIGHT = 210;
const PANEL_HEIGHT = 114;
const TICKS = 30;
const LINE_HEIGHT = 19.5;
// Widths in pixels: of a letter, of the swatch before a name in the legend, and of the margins.
const LETTER = 6.2;
const SWATCH = 46;
const BESIDE = 64;

let loading = null;

/**
 * Loads Plotly from an address of this site, once; after a failure the next call tries again.
 * @param {string} address
 * @returns {Promise<object>}
 */
export function plotly(address) {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = address;
    const fail = (what) => {
      loading = null;
      script.remove();
      reject(new Error(`plotly.min.js ${what}`));
    };
    script.onload = () => (window.Plotly ? resolve(window.Plotly) : fail("is broken"));
    script.onerror = () => fail("cannot be loaded");
    document.head.append(script);
  });
  return loading;
}

/**
 * Returns a figure of the server with the page's colours, the reader's time zone, and room for the legend.
 * @param {{data: object[], layout: object}} figure
 * @param {number} width of the place for it, in pixels
 * @returns {{data: object[], layout: object}}
 */
export function dressed(figure, width) {
  const { data, layout } = structuredClone(figure);
  const colour = colours();
  const moved = movedBy(layout.xaxis.range);
  for (const trace of data) {
    moved(trace);
    if (trace.meta !== "text") continue;
    trace.line.color = colour.text;
    if (trace.marker) trace.marker.color = colour.text;
  }
  layout.xaxis.range = layout.xaxis.range.map(readersTime);
  for (const [name, axis] of Object.entries(layout)) {
    if (/^[xy]axis/.test(name)) Object.assign(axis, { gridcolor: colour.line, linecolor: colour.line, zerolinecolor: colour.line });
  }
  const panels = Number(layout.xaxis.anchor?.slice(1) || 1);
  const below = TICKS + legendLines(data, width) * LINE_HEIGHT;
  return {
    data,
    layout: {
      ...layout,
      height: Math.max(PLOT_HEIGHT, panels * PANEL_HEIGHT) + below,
      margin: { ...layout.margin, b: below },
      legend: { ...layout.legend, maxheight: 1 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: SMALL, color: colour.soft },
      hoverlabel: { ...layout.hoverlabel, bgcolor: colour.card, bordercolor: colour.line, font: { color: colour.text, size: SMALL } },
    },
  };
}

function colours() {
  const names = ["text", "soft", "line", "card"];
  // A variable may contain light-dark(): the computed style of an element has the current colour.
  const sample = document.body.appendChild(document.createElement("span"));
  const byName = names.map((name) => {
    sample.style.color = `var(--${name})`;
    return [name, getComputedStyle(sample).color];
  });
  sample.remove();
  return Object.fromEntries(byName);
}

/** Plotly shows times in UTC, so each is shifted by the reader's offset from UTC at that time. */
function readersTime(time) {
  return time + zoneShift(time);
}

function zoneShift(time) {
  return -new Date(time).getTimezoneOffset() * 60_000;
}

/**
 * Returns a function that shifts the steps of a trace; the shift differs before and after a change of the offset.
 * @param {number[]} range begin and end of the steps
 * @returns {(trace: object) => void}
 */
function movedBy([begin, end]) {
  const before = zoneShift(begin);
  if (before === zoneShift(end)) return (trace) => { trace.x0 += before; };
  return (trace) => {
    const times = Array.from(trace.y, (_, step) => trace.x0 + step * trace.dx);
    // An hour that occurs twice is drawn twice at the same place. One millisecond apart, because Plotly stacks
    // bars of exactly the same time.
    trace.x = times.map((time) => readersTime(time) + (zoneShift(time) < before ? 1 : 0));
    delete trace.x0;
    delete trace.dx;
  };
}

/** Returns the lines that a legend needs, because a legend that scrolls cannot be printed. */
function legendLines(data, width) {
  const names = data.filter((trace) => trace.showlegend !== false).map((trace) => trace.name);
  // All names have the width of the longest.
  const widest = Math.max(...names.map((name) => name.length)) * LETTER + SWATCH;
  return Math.ceil(names.length / Math.max(1, Math.floor((width - BESIDE) / widest)));
}
