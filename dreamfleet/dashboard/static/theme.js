// Runs before anything is drawn, so that a dark page does not flash white. The choice is kept in this browser.
(() => {
  const chosen = new URLSearchParams(location.search).get("theme") ?? localStorage.getItem("dreamfleet.theme");
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
