// Runs before the page is drawn: the colours that were chosen, else those of the system.
(() => {
  const chosen = localStorage.getItem("roseinfer.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
