// SPDX-License-Identifier: MIT
// Live progress of a submission, and files that are dropped. Pages work without this.
"use strict";

const live = document.querySelector("[data-events]");
if (live) {
  const events = new EventSource(live.dataset.events);
  events.addEventListener("status", (event) => {
    live.querySelector(".progress").textContent = JSON.parse(event.data).message;
  });
  events.addEventListener("done", () => {
    events.close();
    location.reload();
  });
}

const drop = document.querySelector("[data-drop]");
if (drop) {
  const input = drop.querySelector("input[type=file]");
  const name = drop.querySelector("[data-name]");
  const say = () => {
    name.textContent = input.files.length ? `${input.files[0].name}, ${input.files[0].size} bytes` : "";
  };
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files.length === 1) {
      input.files = event.dataTransfer.files;
      say();
    }
  });
  input.addEventListener("change", say);
}
