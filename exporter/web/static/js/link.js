// One connection to the server's events, which ends at the first fault; when to try again is for others to say.

// The server lets itself be heard every 15 s; a proxy that keeps back what it passes on is not waited for as long.
const FIRST_WAIT = 10_000;
const SILENCE = 40_000;

/**
 * Opens a stream and calls `heard.hello`, `heard.change` and `heard.gone` with the data and the id of events,
 * and `heard.lost` when the connection fails or is silent for too long. Returns what closes it.
 */
export function link(url, heard) {
  const source = new EventSource(url);
  let silence = 0;
  const wait = (time) => {
    clearTimeout(silence);
    silence = setTimeout(() => end(heard.lost), time);
  };
  const end = (tell) => {
    clearTimeout(silence);
    source.close();
    tell?.();
  };
  for (const name of ["hello", "change", "gone", "beat"]) {
    source.addEventListener(name, (event) => {
      wait(SILENCE);
      heard[name]?.(JSON.parse(event.data), event.lastEventId);
    });
  }
  source.addEventListener("error", () => end(heard.lost));
  wait(FIRST_WAIT);
  return () => end();
}

/** How many milliseconds to wait before the next try: 1, 2, 4 … 30 s, so shifted that not all pages come at once. */
export function backOff(failures) {
  return Math.min(2 ** (failures - 1), 30) * (750 + 500 * Math.random());
}
