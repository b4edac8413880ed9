/**
 * Entry point: starts the other scripts, each on its own, so that one that fails does not affect the others.
 * The page is complete without scripts, but does not update itself.
 */

const parts = [() => import("./live.js"), () => import("./table.js"), () => import("./timeline.js")];

for (const load of parts) {
  load()
    .then((part) => part.start())
    .catch((error) => {
      console.error("a part of the page did not start:", error);
      document.getElementById("connection").textContent = "A part of this page did not start; reload it";
    });
}
