// The grid: a row for each cell, a column for each run. A row is painted when it is to be seen: 1,000 cells have 365,000 squares.
const RUNS = FACTS.runs;
const STEP = Math.max(3, Math.min(16, Math.floor(1200 / Math.max(RUNS.length, 1))));
const HEIGHT = 16;
const BY_LETTER = new Map(Object.entries(VERDICTS).map(([name, [letter]]) => [letter, name]));
const STILL = new Set(["steady", "not run"]);
function day(run) {
  return new Date(run.started * 1000).toISOString().slice(0, 16).replace("T", " ");
}
function paint(canvas, cell, chosen) {
  const { letters } = cell;
  const scale = window.devicePixelRatio || 1;
  canvas.width = letters.length * STEP * scale;
  canvas.height = HEIGHT * scale;
  const to = canvas.getContext("2d");
  to.scale(scale, scale);
  const colours = new Map([...BY_LETTER].map(([letter, name]) => [letter, colour(name)]));
  [...letters].forEach((letter, place) => {
    if (letter === " ") return;
    to.fillStyle = colours.get(letter);
    to.globalAlpha = letter === "." ? 0.55 : 1;
    to.fillRect(place * STEP, letter === "." ? 4 : 0, STEP > 4 ? STEP - 1 : STEP, letter === "." ? HEIGHT - 8 : HEIGHT);
  });
  // A step of speed is a line of its own colour.
  to.globalAlpha = 1;
  to.fillStyle = colour("fixed");
  for (const one of cell.speeds || []) for (const step of one.steps) to.fillRect(step.night * STEP, 0, 2, HEIGHT);
  if (chosen !== null) {
    to.strokeStyle = colour("ink");
    to.lineWidth = 2;
    to.strokeRect(chosen * STEP, 1, Math.max(STEP - 1, 3), HEIGHT - 2);
  }
}
const WATCH = new IntersectionObserver((seen) => {
  for (const one of seen) if (one.isIntersecting) repaint(one.target);
}, { rootMargin: "300px" });
function repaint(canvas) {
  const now = asked();
  const mine = now.get("cell") === canvas.dataset.cell && now.has("run");
  paint(canvas, BY_ID.get(canvas.dataset.cell), mine ? Number(now.get("run")) : null);
}
function cellRow(cell) {
  const why = `${cell.id}: ${cell.headline || cell.state}`;
  const canvas = h("canvas", { "data-cell": cell.id, tabindex: "0", role: "img", "aria-label": why, title: why, style: `width:${cell.letters.length * STEP}px;height:${HEIGHT}px` });
  WATCH.observe(canvas);
  const workload = (cell.axes || {}).workload || cell.id;
  const steps = new Set((cell.speeds || []).flatMap((one) => one.steps.map((step) => step.night))).size;
  const line = [cell.headline, steps ? `speed changed ${steps === 1 ? "once" : `${steps} times`}` : ""].filter(Boolean).join("; ");
  return h("tr", { "data-cell": cell.id }, h("th", { scope: "row" }, h("a", { href: address({ cell: cell.id, run: "" }) }, workload)), h("td", {}, canvas, line ? h("div", { class: "faint" }, line) : ""));
}
function changing(cell) {
  return !STILL.has(cell.state) || (cell.speeds || []).some((one) => one.steps.length);
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
  // The rows of a folded group are made when it is opened.
  const rest = h("details", {}, h("summary", {}, steady));
  rest.addEventListener("toggle", () => { if (rest.open && rest.children.length === 1) rest.append(h("table", { class: "nights" }, still.map(cellRow))); });
  return h("section", { class: "group" }, h("h3", {}, name), moving.length ? h("table", { class: "nights" }, moving.map(cellRow)) : "", still.length ? rest : "");
}
function drawGrid(place, matches) {
  const groups = new Map();
  for (const cell of CELLS.filter(matches)) {
    const axes = cell.axes || {};
    const name = [cell.site, FACTS.matrices.length > 1 ? cell.matrix : "", axes.placement, axes.transport].filter(Boolean).join(" / ") || cell.matrix;
    groups.set(name, [...(groups.get(name) || []), cell]);
  }
  const moving = [...groups].filter(([, cells]) => cells.some(changing));
  const still = [...groups].filter(([, cells]) => !cells.some(changing));
  const folded = h("details", {}, h("summary", {}, `${still.length} placements and transports without a change: ${still.reduce((sum, [, cells]) => sum + cells.length, 0)} cells`));
  folded.addEventListener("toggle", () => { if (folded.open && folded.children.length === 1) folded.append(...still.map(([name, cells]) => group(name, cells))); });
  WATCH.disconnect();
  place.replaceChildren(h("h2", {}, "Cells by runs"),
    h("p", { class: "faint" }, Object.entries(VERDICTS).map(([name, [letter, meaning]]) => h("span", {}, h("span", { class: `badge ${name}` }, letter), ` ${meaning}  `))),
    ...moving.map(([name, cells]) => group(name, cells)), still.length ? folded : "");
  if (!groups.size) place.append(h("p", {}, "No cell is as the filters ask."));
}
// A click, and Enter, open the run of a cell that is under the pointer, or the last one.
function runAt(canvas, event) {
  return Math.max(0, Math.min(RUNS.length - 1, Math.floor((event.clientX - canvas.getBoundingClientRect().left) / STEP)));
}
function moveInGrid(event) {
  const canvas = event.target.closest("canvas[data-cell]");
  if (!canvas) return;
  const now = asked();
  const place = now.get("cell") === canvas.dataset.cell && now.has("run") ? Number(now.get("run")) : RUNS.length;
  const along = { ArrowLeft: -1, ArrowRight: 1, Enter: place === RUNS.length ? -1 : 0 }[event.key];
  if (along !== undefined) {
    event.preventDefault();
    ask({ cell: canvas.dataset.cell, run: String(Math.max(0, Math.min(RUNS.length - 1, place + along))) }, true);
    return;
  }
  const across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!across) return;
  event.preventDefault();
  const every = [...event.currentTarget.querySelectorAll("canvas[data-cell]")].filter((one) => one.offsetParent);
  const next = every[every.indexOf(canvas) + across];
  if (next) next.focus();
}
