// Shows the age of the data on the page, by the server's clock.

let ahead = 0;

/** Sets the clock: `now` is the server's Unix time at `at`, the browser's time in milliseconds. */
export function setClock(now, at = Date.now()) {
  ahead = now - at / 1000;
}

/** Sets the clock by the server's time in the page. */
export function setClockByPage() {
  const { now } = document.body.dataset;
  const loaded = performance.getEntriesByType("navigation")[0]?.responseStart;
  if (now) setClock(Number(now), performance.timeOrigin + (loaded ?? 0));
}

/** Shows the age of the data in the head of the page. */
export function showAge() {
  const { sequence, timestamp } = document.body.dataset;
  const line = document.querySelector("#status .age");
  const time = line?.querySelector("time");
  if (!time || !timestamp || sequence.startsWith("0-")) return;
  const age = Math.max(Date.now() / 1000 + ahead - Number(timestamp), 0);
  // The verb, and the age in seconds from which data is old, are from the server.
  const { done, old } = line.dataset;
  const text = `${done} ${duration(age)} ago`;
  if (time.textContent !== text) time.textContent = text;
  line.classList.toggle("old", age > old);
  line.classList.toggle("fresh", age <= old);
}

/** Returns seconds as text in their two largest units, as the server does. */
export function duration(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Returns the time of day of a date as text. */
export function timeOfDay(date) {
  return date.toTimeString().slice(0, 8);
}
