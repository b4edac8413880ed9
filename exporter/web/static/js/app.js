/**
 * Entry of the scripts of a page: starts the others, each by itself, so that one that fails leaves the rest.
 * The page is whole without any of them, but it may then stay as it is.
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
