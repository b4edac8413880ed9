/**
 * Draws figures with Plotly, in the colours of the page and the time of its reader: the server knows neither.
 * Plotly itself is large, and loaded when the first figure is to be drawn.
 */

const SMALL = 11;
// Of what is drawn, of the times below it, and of a line of its legend, in pixels.
const PLOT_HEIGHT = 210;
const PANEL_HEIGHT = 114;
const TICKS = 30;
const LINE_HEIGHT = 19.5;
// Of a letter and of what stands before a name in a legend, in pixels.
const LETTER = 6.2;
const SWATCH = 46;
const BESIDE = 64;

let loading = null;

/**
 * Loads Plotly from an address of this site, once; after a failure it may be tried again.
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
 * Puts a figure of the server into a figure for this page: its colours, the reader's time, and room for names.
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
  // A variable may stand for one colour of two; an element that wears it has one.
  const wearer = document.body.appendChild(document.createElement("span"));
  const found = names.map((name) => {
    wearer.style.color = `var(--${name})`;
    return [name, getComputedStyle(wearer).color];
  });
  wearer.remove();
  return Object.fromEntries(found);
}

/** Plotly writes times as those of UTC: each is moved by what the reader's clock was ahead at that time. */
function readersTime(time) {
  return time + zoneShift(time);
}

function zoneShift(time) {
  return -new Date(time).getTimezoneOffset() * 60_000;
}

/**
 * Tells how to move the steps of a trace: those before a change of the reader's clock otherwise than those after.
 * @param {number[]} range from when to when there are steps
 * @returns {(trace: object) => void}
 */
function movedBy([begin, end]) {
  const before = zoneShift(begin);
  if (before === zoneShift(end)) return (trace) => { trace.x0 += before; };
  return (trace) => {
    const times = Array.from(trace.y, (_, step) => trace.x0 + step * trace.dx);
    // An hour that a clock tells twice is drawn twice at the same place: bars of the very same time would be
    // put on top of each other, as if both were used at once.
    trace.x = times.map((time) => readersTime(time) + (zoneShift(time) < before ? 1 : 0));
    delete trace.x0;
    delete trace.dx;
  };
}

/** Names take as many lines as they need: a legend that scrolls cannot be printed. */
function legendLines(data, width) {
  const names = data.filter((trace) => trace.showlegend !== false).map((trace) => trace.name);
  // All names of a legend have the room of the longest.
  const widest = Math.max(...names.map((name) => name.length)) * LETTER + SWATCH;
  return Math.ceil(names.length / Math.max(1, Math.floor((width - BESIDE) / widest)));
}
