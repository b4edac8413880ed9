/**
 * The timelines: loaded when they come into view and the page is idle, and drawn again as time passes, with another
 * range, and with another theme. Errors are shown in their place.
 */

import { navigate } from "./live.js";
import { dressed, plotly } from "./plot.js";

const SOONEST_MS = 5_000;
const LATEST_MS = 60_000;
const PARTS_OF_STEP = 2;
const AHEAD = "300px";

let shown = null;
let shownFrom = "";
let fetchedAt = 0;
let loading = null;
let visible = false;

/** Loads the timelines when they come into view. */
export async function start() {
  if (!section()) return;
  document.addEventListener("click", onClick);
  document.addEventListener("gpuslice:update", onUpdate);
  document.addEventListener("visibilitychange", onUpdate);
  new MutationObserver(redraw).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  await usable();
  new IntersectionObserver(onView, { rootMargin: AHEAD }).observe(section());
}

function section() {
  return document.querySelector("section[data-figures]:not([hidden])");
}

async function usable() {
  if (document.readyState !== "complete") await new Promise((done) => addEventListener("load", done, { once: true }));
  if (window.requestIdleCallback) await new Promise((done) => requestIdleCallback(done, { timeout: 2_000 }));
}

function onView(entries) {
  visible = entries.at(-1).isIntersecting;
  onUpdate();
}

function onClick(event) {
  const link = event.target.closest?.("#timeline .ranges a");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  const address = new URL(link.href);
  // Without the anchor: the timelines are in view already.
  address.hash = "";
  navigate(address.href);
}

function onUpdate() {
  const place = section();
  if (!visible || !place || document.hidden) return;
  const step = (shown?.step ?? 0) * 1000;
  const pace = Math.min(LATEST_MS, Math.max(SOONEST_MS, step / PARTS_OF_STEP));
  if (place.dataset.figures !== shownFrom || Date.now() - fetchedAt >= pace) update(place);
}

async function update(place) {
  const address = place.dataset.figures;
  if (loading && shownFrom === address) return;
  loading?.abort();
  const mine = (loading = new AbortController());
  shownFrom = address;
  fetchedAt = Date.now();
  if (!shown) say("Loading …");
  try {
    const [Plotly, fresh] = await Promise.all([plotly(place.dataset.plotly), fetched(address, mine.signal)]);
    if (mine.signal.aborted) return;
    shown = fresh;
    draw(Plotly);
  } catch (error) {
    if (!mine.signal.aborted) fail(error);
  } finally {
    if (loading === mine) loading = null;
  }
}

async function fetched(address, signal) {
  const answer = await fetch(address, { signal, cache: "no-cache" });
  const data = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(data.error ?? `the server answers with status ${answer.status}`);
  return data;
}

function redraw() {
  if (shown && window.Plotly && !document.querySelector(".timeline-problem")) draw(window.Plotly);
}

function draw(Plotly) {
  const parent = document.getElementById("timeline-figures");
  if (!parent) return;
  const wanted = new Set(shown.figures.map((figure) => `timeline-${figure.id}`));
  for (const child of [...parent.children]) {
    if (wanted.has(child.id)) continue;
    for (const plot of child.querySelectorAll(".plot")) Plotly.purge(plot);
    child.remove();
  }
  // All frames first, because the width of each depends on their number.
  for (const { id } of shown.figures) {
    if (!document.getElementById(`timeline-${id}`)) parent.append(framed(id));
  }
  for (const { id, title, summary, figure } of shown.figures) {
    const place = document.getElementById(`timeline-${id}`);
    place.querySelector("h3").textContent = title;
    place.querySelector("p").textContent = summary;
    const plot = place.querySelector(".plot");
    plot.setAttribute("aria-label", `${title}. ${summary}`);
    const { data, layout } = dressed(figure, plot.clientWidth);
    Plotly.react(plot, data, layout, shown.config);
  }
  say(noteOf(shown));
}

function framed(id) {
  const frame = document.createElement("figure");
  frame.id = `timeline-${id}`;
  const caption = document.createElement("figcaption");
  caption.append(document.createElement("h3"), document.createElement("p"));
  const plot = document.createElement("div");
  plot.className = "plot";
  plot.setAttribute("role", "img");
  frame.append(caption, plot);
  return frame;
}

function noteOf({ figures, begins, start: from, step, note }) {
  const notes = [];
  if (!figures.length || begins === null) notes.push("No data in this range.");
  else if (begins > from + step) notes.push(`History begins at ${timeOf(begins)}.`);
  if (note) notes.push(`${note[0].toUpperCase()}${note.slice(1)}.`.replace(/\.\.$/, "."));
  return notes.join(" ");
}

function timeOf(seconds) {
  const time = new Date(seconds * 1000);
  const today = time.toDateString() === new Date().toDateString();
  const short = { hour: "2-digit", minute: "2-digit" };
  return today ? time.toLocaleTimeString([], short) : time.toLocaleString([], { day: "numeric", month: "short", ...short });
}

function say(text) {
  const place = document.getElementById("timeline-note");
  if (place && place.textContent !== text) place.textContent = text;
}

function fail(error) {
  say("");
  const parent = document.getElementById("timeline-figures");
  if (!parent) return;
  for (const plot of parent.querySelectorAll(".plot")) window.Plotly?.purge(plot);
  const text = `The timeline could not be loaded: ${error.message}.`.replace(/\.\.$/, ".");
  // Unchanged text is not set again, or screen readers would repeat it.
  if (parent.querySelector(".timeline-problem")?.firstChild.data === text) return;
  const problem = document.createElement("p");
  problem.className = "timeline-problem";
  problem.setAttribute("role", "alert");
  const retry = document.createElement("button");
  retry.className = "button";
  retry.type = "button";
  retry.textContent = "Retry";
  retry.addEventListener("click", () => update(section()));
  problem.append(text, retry);
  parent.replaceChildren(problem);
}
