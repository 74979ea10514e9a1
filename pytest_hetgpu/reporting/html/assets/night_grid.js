// The grid: a row for each cell, a column for each run. A row is painted when it is to be seen: 1,000 cells have 365,000 squares.
const RUNS = FACTS.runs;
const STEP = Math.max(3, Math.min(16, Math.floor(1200 / Math.max(RUNS.length, 1))));
const WIDTH = Math.max(RUNS.length, 1) * STEP;
const HEIGHT = 16;
// A browser paints no canvas that is wider.
const WIDEST = 32000;
const STILL = new Set(["steady", "not run"]);
const PAINTED = new Set();
const MOST_OPEN = 50;
function day(run) {
  const started = new Date(run.started * 1000);
  return Number.isNaN(started.getTime()) ? "at an unknown time" : started.toISOString().slice(0, 16).replace("T", " ");
}
// The outcome of a cell in each run; null if the run has no such cell.
const OUTCOMES = new WeakMap();
function outcomesOf(cell) {
  if (!OUTCOMES.has(cell)) OUTCOMES.set(cell, (cell.outcomes || []).flatMap(([number, count]) => Array(count).fill(number === null ? null : FACTS.outcomes[number])));
  return OUTCOMES.get(cell);
}
// The newest run that has the cell: runs of several sites take turns.
function newestOf(cell) {
  const last = outcomesOf(cell).findLastIndex((one) => one);
  return last < 0 ? RUNS.length - 1 : last;
}
function letterOf(one) {
  return one ? VERDICTS[one.verdict][0] : " ";
}
function stepsOf(cell) {
  return [...new Set((cell.speeds || []).flatMap((one) => one.steps.map((step) => step.night)))];
}
function paint(canvas, cell, chosen) {
  const scale = Math.min(window.devicePixelRatio || 1, WIDEST / WIDTH);
  canvas.width = WIDTH * scale;
  canvas.height = HEIGHT * scale;
  const to = canvas.getContext("2d");
  to.scale(scale, scale);
  const colours = new Map(Object.keys(VERDICTS).map((name) => [name, colour(name)]));
  outcomesOf(cell).forEach((one, place) => {
    if (!one) return;
    const works = one.verdict === "ok";
    to.fillStyle = colours.get(one.verdict);
    to.globalAlpha = works ? 0.55 : 1;
    to.fillRect(place * STEP, works ? 4 : 0, STEP > 4 ? STEP - 1 : STEP, works ? HEIGHT - 8 : HEIGHT);
  });
  // A step of speed is a line of its own colour.
  to.globalAlpha = 1;
  to.fillStyle = colour("ink");
  for (const night of stepsOf(cell)) to.fillRect(night * STEP, 0, 2, HEIGHT);
  if (chosen !== null) {
    to.strokeStyle = colour("ink");
    to.lineWidth = 2;
    to.strokeRect(chosen * STEP, 1, Math.max(STEP - 1, 3), HEIGHT - 2);
  }
}
function chosenRun(id) {
  const now = asked();
  const run = Number(now.get("run"));
  return now.get("cell") === id && now.has("run") && Number.isInteger(run) && run >= 0 && run < RUNS.length ? run : null;
}
function describeRun(cell, place) {
  const one = outcomesOf(cell)[place];
  return `${day(RUNS[place])}: ${one ? `${VERDICTS[one.verdict][1]}${one.name === "ok" ? "" : ` (${one.name})`}` : "no such cell"}${RUNS[place].page && one ? "; its page is kept" : ""}`;
}
function repaint(canvas) {
  const cell = BY_ID.get(canvas.dataset.cell);
  const chosen = chosenRun(cell.id);
  paint(canvas, cell, chosen);
  PAINTED.add(canvas);
  const place = chosen === null ? newestOf(cell) : chosen;
  canvas.setAttribute("aria-valuenow", place + 1);
  canvas.setAttribute("aria-valuetext", describeRun(cell, place));
}
const WATCH = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) {
    if (!isIntersecting || PAINTED.has(target)) continue;
    repaint(target);
    // In a narrow window the newest runs are seen first.
    const box = target.closest(".scroll");
    if (box && !box.dataset.moved) box.scrollLeft = box.scrollWidth;
    if (box) box.dataset.moved = "yes";
  }
}, { rootMargin: "300px" });
function cellRow(cell) {
  const why = `${cell.id}: ${cell.headline || cell.state}`;
  const canvas = h("canvas", { "data-cell": cell.id, tabindex: "0", role: "slider", "aria-label": why, "aria-valuemin": "1", "aria-valuemax": String(RUNS.length), style: `width:${WIDTH}px` });
  WATCH.observe(canvas);
  const steps = stepsOf(cell).length;
  const line = [cell.headline, steps ? `speed changed ${steps === 1 ? "once" : `${steps} times`}` : ""].filter(Boolean).join("; ");
  const name = (cell.axes || {}).workload || cell.id;
  return h("tr", { "data-cell": cell.id }, h("th", { scope: "row" }, h("a", { href: address({ cell: cell.id, run: "" }), title: cell.id, tabindex: "-1" }, name)),
    h("td", {}, canvas, line ? h("div", { class: "note" }, line) : ""));
}
function changing(cell) {
  const verdicts = new Set(outcomesOf(cell).filter((one) => one && one.verdict !== "not_run").map((one) => one.verdict));
  return !STILL.has(cell.state) || verdicts.size > 1 || stepsOf(cell).length > 0;
}
// Dates above the runs, and a line below those whose pages are kept.
function axis() {
  const every = Math.ceil(90 / STEP);
  const at = (place) => `left:${(100 * place) / RUNS.length}%`;
  const days = RUNS.flatMap((run, place) => (place % every === 0 && (place === 0 || place + every <= RUNS.length) ? [h("span", { style: at(place) }, day(run).slice(0, 10))] : []));
  const kept = [];
  RUNS.forEach((run, place) => {
    const last = kept[kept.length - 1];
    if (run.page && last && last[0] + last[1] === place) last[1] += 1;
    else if (run.page) kept.push([place, 1]);
  });
  return h("div", { class: "axis", "aria-hidden": "true", style: `width:${WIDTH}px` }, days,
    kept.map(([place, count]) => h("i", { style: `${at(place)};width:${(100 * count) / RUNS.length}%` })));
}
function rows(name, cells) {
  return h("div", { class: "scroll", tabindex: "-1" }, h("table", { class: "nights" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, name ? h("h3", { title: name }, name) : ""), h("td", {}, axis()))), h("tbody", {}, cells.map(cellRow))));
}
// The rows of what is folded are made when it is opened.
function fold(summary, make) {
  const head = h("summary", {}, summary);
  const made = h("details", {}, head);
  const fill = () => { if (made.children.length === 1) made.append(...[make()].flat(Infinity)); };
  head.addEventListener("click", fill);
  made.addEventListener("toggle", fill);
  return made;
}
function group(name, cells) {
  const moving = cells.filter(changing);
  const still = cells.filter((cell) => !changing(cell));
  const kinds = new Map();
  for (const cell of still) {
    const [, meaning] = VERDICTS[cell.verdict];
    kinds.set(meaning, (kinds.get(meaning) || 0) + 1);
  }
  const steady = `${still.length} never changed: ${[...kinds].map(([meaning, count]) => `${count} ${meaning}`).join(", ")}`;
  if (!moving.length) return h("section", { class: "group" }, rows(name, still));
  return h("section", { class: "group" }, rows(name, moving), still.length ? fold(steady, () => rows("", still)) : "");
}
function plural(number, one, several) {
  return `${number} ${number === 1 ? one : several}`;
}
function drawGrid(place, matches) {
  WATCH.disconnect();
  PAINTED.clear();
  const groups = new Map();
  for (const cell of CELLS.filter(matches)) {
    const axes = cell.axes || {};
    const name = [cell.site, FACTS.matrices.length > 1 ? cell.matrix : "", axes.placement, axes.transport].filter(Boolean).join(" / ") || cell.matrix;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(cell);
  }
  const moving = [...groups].filter(([, cells]) => cells.some(changing));
  const still = [...groups].filter(([, cells]) => !cells.some(changing));
  const number = still.reduce((sum, [, cells]) => sum + cells.length, 0);
  const make = () => still.map(([name, cells]) => group(name, cells));
  // With nothing else to be seen, a fold would hide all.
  const open = !moving.length && number <= MOST_OPEN;
  const folded = open ? make() : fold(`${plural(still.length, "group", "groups")} of cells without a change: ${plural(number, "cell", "cells")}`, make);
  place.replaceChildren(h("h2", {}, "Cells by runs"),
    h("p", { class: "legend" }, Object.entries(VERDICTS).map(([name, [letter, meaning]]) => h("span", {}, h("span", { class: `badge ${name}` }, letter), ` ${meaning}`)),
      CELLS.some((cell) => stepsOf(cell).length) ? h("span", {}, h("span", { class: "tick" }), " speed changed") : "",
      RUNS.some((run) => run.page) ? h("span", {}, h("span", { class: "kept" }), " page of the run is kept: a click opens it") : ""),
    ...moving.map(([name, cells]) => group(name, cells)), ...(still.length ? [folded].flat() : []));
  if (!groups.size) place.append(h("p", {}, RUNS.length ? "No cell matches the filters." : "No run is in the history."));
}
function runAt(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return Math.max(0, Math.min(RUNS.length - 1, Math.floor(((event.clientX - box.left) / box.width) * RUNS.length)));
}
// The page of a run opens at the cell. A run of several matrices has their names in the labels of cells.
function pageOf(cell, place) {
  const run = RUNS[place];
  if (!run || !run.page || !outcomesOf(cell)[place]) return "";
  const label = run.several ? `${cell.matrix}.${cell.scenario}` : cell.scenario;
  return `${run.page}#cell=${encodeURIComponent(label)}`;
}
