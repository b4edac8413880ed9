// Tells how old the data on the page is, by the server's clock, whether or not anything new arrives.

let ahead = 0;

/** Sets the clock by the server's Unix time as it was at `at`, milliseconds of this browser. */
export function setClock(now, at = Date.now()) {
  ahead = now - at / 1000;
}

/** Sets the clock by the page itself, which the server dated when it made it. */
export function setClockByPage() {
  const { now } = document.body.dataset;
  const loaded = performance.getEntriesByType("navigation")[0]?.responseStart;
  if (now) setClock(Number(now), performance.timeOrigin + (loaded ?? 0));
}

/** Writes the age of the data into the head of the page. */
export function showAge() {
  const { sequence, timestamp } = document.body.dataset;
  const line = document.querySelector("#status .age");
  const time = line?.querySelector("time");
  if (!time || !timestamp || sequence.startsWith("0-")) return;
  const age = Math.max(Date.now() / 1000 + ahead - Number(timestamp), 0);
  // The server says what was done, and from what age on it stands out.
  const { done, old } = line.dataset;
  const text = `${done} ${duration(age)} ago`;
  if (time.textContent !== text) time.textContent = text;
  line.classList.toggle("old", age > old);
  line.classList.toggle("fresh", age <= old);
}

/** Writes seconds as the server does: with their two largest units. */
export function duration(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${Math.floor(seconds)} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Writes a moment as the time of day. */
export function timeOfDay(date) {
  return date.toTimeString().slice(0, 8);
}
