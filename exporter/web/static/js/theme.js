/**
 * The theme: a classic script in the head, so that the first paint has the chosen theme.
 * The button cycles through system, light and dark.
 */

(() => {
  const key = "gpuslice-theme";
  const themes = ["system", "light", "dark"];
  const root = document.documentElement;

  function chosen() {
    try {
      const kept = localStorage.getItem(key);
      return themes.includes(kept) ? kept : "system";
    } catch {
      // Storage may be forbidden; the theme is then that of the system.
      return "system";
    }
  }

  function keep(theme) {
    try {
      localStorage.setItem(key, theme);
    } catch {
      // Without storage it lasts as long as the page.
    }
  }

  function show(theme) {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
  }

  let theme = chosen();
  show(theme);

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (!button) return;
    const label = () => {
      button.textContent = `Theme: ${theme}`;
    };
    button.addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      keep(theme);
      show(theme);
      label();
    });
    label();
    button.hidden = false;
  });
})();
