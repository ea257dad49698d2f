// SPDX-License-Identifier: MIT
// Links source, PTX or IR, and machine code: a click marks everything that came from the same line and scrolls to it.
"use strict";
for (const section of document.querySelectorAll(".function")) {
  const lines = [...section.querySelectorAll("[data-p]"), ...document.querySelectorAll(".stage [data-p]")];
  const byPlace = new Map();
  for (const line of lines)
    for (const place of line.dataset.p.split(" "))
      if (place) byPlace.set(place, [...(byPlace.get(place) || []), line]);
  const mark = (name, line) => {
    for (const old of document.querySelectorAll("." + name)) old.classList.remove(name);
    const places = line.dataset.p.split(" ").filter(Boolean);
    const own = line.closest(".source") ? places : places.slice(0, 1);
    for (const place of own) for (const other of byPlace.get(place) || []) other.classList.add(name);
    for (const place of places)
      for (const other of byPlace.get(place) || []) if (other.closest(".source")) other.classList.add(name);
    line.classList.add(name);
  };
  section.addEventListener("mouseover", event => {
    const line = event.target.closest("[data-p]");
    if (line) mark("near", line);
  });
  section.addEventListener("click", event => {
    const line = event.target.closest("[data-p]");
    if (!line) return;
    mark("chosen", line);
    const pane = line.closest(".pane");
    for (const other of section.querySelectorAll(".pane")) {
      const first = other !== pane && other.querySelector(".chosen");
      if (!first) continue;
      for (let at = first.parentElement; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
      other.scrollTop += first.getBoundingClientRect().top - other.getBoundingClientRect().top - other.clientHeight / 3;
    }
  });
  section.querySelector("button.fold").addEventListener("click", event => {
    const all = [...section.querySelectorAll("details.loop")];
    const open = all.some(loop => !loop.open);
    for (const loop of all) loop.open = open;
    event.target.textContent = open ? "Fold loops" : "Unfold loops";
  });
}
