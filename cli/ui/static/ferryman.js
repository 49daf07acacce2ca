// Live numbers. The page works without this: a reload shows the same.
"use strict";
(() => {
  const from = document.body.dataset.live;
  const dot = document.getElementById("live-state");
  const lost = document.getElementById("live-lost");
  if (!from || !window.EventSource) return;
  const cells = new Map();
  for (const cell of document.querySelectorAll("[data-cell]")) cells.set(cell.dataset.cell, cell);
  const say = (on) => {
    const text = "Live numbers: " + (on ? "on" : "off");
    dot.classList.toggle("on", on);
    dot.title = text;
    dot.setAttribute("aria-label", text);
    lost.hidden = on;
  };
  const source = new EventSource(from);
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
