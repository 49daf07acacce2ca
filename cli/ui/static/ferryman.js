// Live numbers, and pages that wait for something. Nothing depends on this: a reload shows the same.
"use strict";
(() => {
  const { live, again } = document.body.dataset;
  if (again) setTimeout(() => location.reload(), 1000 * Number(again));
  if (!live || !window.EventSource) return;
  const dot = document.getElementById("live-state");
  const lost = document.getElementById("live-lost");
  const cells = new Map();
  for (const cell of document.querySelectorAll("[data-cell]")) cells.set(cell.dataset.cell, cell);
  const say = (on) => {
    const text = "Live numbers: " + (on ? "on" : "off");
    dot.classList.toggle("on", on);
    dot.title = text;
    dot.setAttribute("aria-label", text);
    lost.hidden = on;
  };
  const source = new EventSource(live);
  source.addEventListener("numbers", (event) => {
    say(true);
    for (const [name, text] of Object.entries(JSON.parse(event.data))) {
      const cell = cells.get(name);
      if (!cell || cell.textContent === text) continue;
      cell.textContent = text;
      cell.classList.remove("changed");
      void cell.offsetWidth;
      cell.classList.add("changed");
    }
  });
  source.addEventListener("failure", () => say(false));
  source.onerror = () => say(false);
  addEventListener("pagehide", () => source.close());
})();
