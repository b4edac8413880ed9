// One connection to the server's events, which ends at the first error. The caller decides when to reconnect.

// The server sends an event at least every 15 s. A proxy that buffers the stream is detected after FIRST_WAIT.
const FIRST_WAIT = 10_000;
const SILENCE = 40_000;

/**
 * Opens a stream and calls `handlers.hello`, `handlers.change` and `handlers.gone` with the data and the id of
 * events, and `handlers.lost` when the connection fails or is silent for too long. Returns a function that
 * closes it.
 */
export function link(url, handlers) {
  const source = new EventSource(url);
  let silence = 0;
  const wait = (time) => {
    clearTimeout(silence);
    silence = setTimeout(() => end(handlers.lost), time);
  };
  const end = (notify) => {
    clearTimeout(silence);
    source.close();
    notify?.();
  };
  for (const name of ["hello", "change", "gone", "beat"]) {
    source.addEventListener(name, (event) => {
      wait(SILENCE);
      handlers[name]?.(JSON.parse(event.data), event.lastEventId);
    });
  }
  source.addEventListener("error", () => end(handlers.lost));
  wait(FIRST_WAIT);
  return () => end();
}

/** Returns the milliseconds until the next try: about 1, 2, 4 … 30 s, randomized so that pages do not synchronize. */
export function backOff(failures) {
  return Math.min(2 ** (failures - 1), 30) * (750 + 500 * Math.random());
}
