// Keeps the open page up to date: by the server's events, or by fetching the page if these do not arrive.
//
// After each change of the page, the document gets the event "gpuslice:update".

import { duration, setClock, setClockByPage, showAge, timeOfDay } from "./age.js";
import { backOff, link } from "./link.js";
import { applyChange, applyPage, fetchPage } from "./page.js";

// Browsers limit the connections to one server, so hidden tabs close theirs after this time.
const HIDDEN_MS = 20_000;
// The minimum interval of fetches, and the number of fetches until the stream is tried again.
const FETCH_SECONDS = 10;
const FETCHES_PER_TRY = 6;
const GONE_MS = 30_000;
const MARK = "gpuslice-reloaded";

let close = null;
let timer = 0;
let hiding = 0;
// The number of starts and stops: results of work begun under an earlier number are ignored.
let turn = 0;
let failures = 0;
let lostAt = 0;
let paused = false;
let loading = null;
let shown = "";
let current = false;

/** Starts the updates of this page. */
export function start() {
  if (!document.body.dataset.live) return;
  setClockByPage();
  setInterval(tick, 1000);
  shown = location.pathname + location.search;
  const button = document.getElementById("pause");
  button.addEventListener("click", () => pause(button));
  button.hidden = false;
  document.addEventListener("visibilitychange", attend);
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => event.persisted && !paused && open());
  addEventListener("popstate", () => {
    if (location.pathname + location.search !== shown) navigate(location.href, { history: "none" });
  });
  attend();
}

/**
 * Shows another page of this site in place of this one, without a reload.
 * `history`: "push" adds an entry to the browser's history, "replace" replaces the current one, "none" does neither.
 * Resolves to whether the page is shown; the last call wins.
 */
export async function navigate(url, { history = "push" } = {}) {
  loading?.abort();
  const mine = (loading = new AbortController());
  const target = new URL(url, location.href);
  try {
    const { page } = await fetchPage(target.href, mine.signal);
    if (mine.signal.aborted) return false;
    if (!page) {
      location.assign(target.href);
      return false;
    }
    stop();
    if (history !== "none") window.history[`${history}State`](null, "", target);
    update(page);
    if (paused) sayPaused();
    else open();
    return true;
  } catch (error) {
    if (mine.signal.aborted) return false;
    if (history === "none" && !paused) {
      // The address is already that of the other page, so it is fetched until it arrives.
      stop();
      failures = Math.max(failures, 1);
      lost();
    } else say("The server cannot be reached; this is the previous page.");
    return false;
  }
}

function update(page) {
  shown = location.pathname + location.search;
  applyPage(page);
  setClock(Number(page.body.dataset.now));
  tick();
}

function open() {
  stop();
  const { live, sequence } = document.body.dataset;
  const url = new URL(live, location.href);
  url.search = location.search;
  url.searchParams.set("since", sequence);
  close = link(url.href, { hello, change, gone, lost });
}

function stop() {
  turn += 1;
  clearTimeout(timer);
  close?.();
  close = null;
}

function hello({ now, version }) {
  failures = 0;
  lostAt = 0;
  current = false;
  setClock(now);
  if (version === document.body.dataset.version) say("");
  else upgraded(version);
  tick();
}

function change(data, sequence) {
  applyChange(data, sequence);
  // The first event may be older, made for other clients. Later ones correct the clock.
  if (current) setClock(data.now);
  current = true;
  tick();
}

/** Reloads the page after an upgrade, once for each version: two versions may answer in turns. */
function upgraded(version) {
  const server = version ? "Another version of the exporter" : "Another server";
  if (tried(version)) say(`${server} answers; reload the page to see it`);
  else location.reload();
}

function tried(version) {
  try {
    if (sessionStorage.getItem(MARK) === version) return true;
    sessionStorage.setItem(MARK, version);
    return false;
  } catch {
    // Without storage, endless reloads cannot be ruled out.
    return true;
  }
}

function gone() {
  stop();
  lostAt = 0;
  const polled = new Date(document.body.dataset.timestamp * 1000);
  say(`No longer there; last seen at ${timeOfDay(polled)}`);
  later(lost, GONE_MS);
}

/** Reconnects after a failure; from the second failure on, the page is fetched in the meantime. */
async function lost() {
  const mine = turn;
  failures += 1;
  lostAt ||= Date.now();
  if (failures < 2) {
    disconnected();
    later(open, backOff(failures));
    return;
  }
  const { status, page, version } = await fetchPage(location.href).catch(() => ({ status: 0 }));
  if (mine !== turn) return;
  if (status === 404) gone();
  else if (status === 200) fetched(page, version);
  else {
    disconnected();
    later(open, backOff(failures));
  }
}

function fetched(page, version) {
  const seconds = Math.max(Number(document.body.dataset.interval), FETCH_SECONDS);
  lostAt = 0;
  if (page) {
    update(page);
    say(`No live stream; fetched every ${seconds} s`);
  } else {
    upgraded(version);
  }
  later(failures % FETCHES_PER_TRY ? lost : open, seconds * 1000);
}

function disconnected() {
  say("disconnected");
  tick();
}

function later(work, milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(work, milliseconds);
}

function pause(button) {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  button.textContent = paused ? "Resume" : "Pause";
  failures = 0;
  lostAt = 0;
  if (paused) {
    stop();
    sayPaused();
  } else {
    say("");
    open();
  }
  tick();
}

function attend() {
  clearTimeout(hiding);
  if (document.hidden) {
    hiding = setTimeout(stop, HIDDEN_MS);
  } else {
    tick();
    if (!paused && !close) open();
  }
}

function sayPaused() {
  say(`paused at ${timeOfDay(new Date())}`);
}

/** Shows the state of the connection; unchanged text is not set again, or screen readers would repeat it. */
function say(text) {
  const line = document.getElementById("connection");
  if (line.textContent !== text) line.textContent = text;
}

function tick() {
  showAge();
  const counter = document.getElementById("connection-for");
  const text = lostAt ? `${duration((Date.now() - lostAt) / 1000)}, retrying` : "";
  if (counter.textContent !== text) counter.textContent = text;
  counter.parentElement.classList.toggle("lost", lostAt > 0);
}
