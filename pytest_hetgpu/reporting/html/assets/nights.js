// Puts the page of nights together, and follows the address.
const PLACES = Object.fromEntries(["period", "totals", "filters", "grid", "cell", "speeds", "failures", "hosts", "between"].map((id) => [id, document.getElementById(id)]));
function drawNightTotals(place, matches) {
  const counts = new Map();
  const shown = CELLS.filter(matches);
  for (const cell of shown) counts.set(cell.state, (counts.get(cell.state) || 0) + 1);
  place.replaceChildren(...[...counts].map(([state, count]) => h("b", {}, `${count} ${state}`)), shown.length < CELLS.length ? h("span", { class: "faint" }, `${shown.length} of ${CELLS.length} cells`) : "");
}
function cellLinks(ids) {
  return ids.slice(0, 6).flatMap((id, at) => [at ? ", " : "", h("a", { href: address({ cell: id, run: "" }) }, id)]).concat(ids.length > 6 ? ` and ${ids.length - 6} more` : "");
}
function drawFailures(place, matches) {
  const shown = new Set(CELLS.filter(matches).map((cell) => cell.id));
  const rows = FACTS.failures.filter((one) => one.cells.some((id) => shown.has(id))).map((one) => h("tr", {},
    h("td", {}, h("code", {}, one.name)), h("td", {}, one.state, one.state === "comes and goes" ? "" : ` since ${day(RUNS[one.since])}`), h("td", {}, day(RUNS[one.first])), h("td", {}, day(RUNS[one.last])),
    h("td", {}, String(one.runs)), h("td", {}, cellLinks(one.cells)), h("td", {}, one.hosts.join(", ")), h("td", {}, one.issue ? link(one.issue) : "")));
  place.replaceChildren();
  if (rows.length) place.append(h("h2", {}, "Failures"), table(["failure", "state", "first seen", "last seen", "runs", "cells", "hosts", "issue"], rows));
}
function drawSteps(place, matches) {
  const rows = CELLS.filter(matches).flatMap((cell) => (cell.speeds || []).flatMap((one) => one.steps.map((step) => [step.night, h("tr", {},
    h("td", {}, day(RUNS[step.night])), h("td", {}, h("a", { href: address({ cell: cell.id, run: String(step.night) }) }, cell.id)), h("td", {}, step.line), h("td", {}, h("ul", {}, step.changes.map((line) => h("li", {}, line)))))])));
  rows.sort(([a], [b]) => b - a);
  place.replaceChildren();
  if (rows.length) place.append(h("h2", {}, "Steps of speed"), table(["run", "cell", "step", "changed before it"], rows.map(([, row]) => row)));
}
function drawHosts(place) {
  if (FACTS.hosts.length < 2) return;
  place.append(h("h2", {}, "Hosts"), table(["host", "failures that only it has"], FACTS.hosts.map((one) => h("tr", {}, h("td", {}, one.name),
    h("td", {}, one.failures.length ? h("ul", {}, one.failures.map((name) => h("li", {}, h("code", {}, name)))) : "none")))));
}
function drawBetween(place) {
  const rows = FACTS.between.map((lines, at) => [lines, RUNS[at]]).filter(([lines]) => lines.length).reverse();
  if (rows.length) place.append(h("h2", {}, "Changes between runs"), table(["run", "changed before it"], rows.map(([lines, run]) => h("tr", {}, h("td", {}, `${day(run)} (${run.id})`), h("td", {}, h("ul", {}, lines.map((line) => h("li", {}, line))))))));
}
let drawn = null;
function follow() {
  const now = asked();
  const matches = matcher();
  followFilters(PLACES.filters, now);
  // The grid changes with the filters alone.
  const filters = [...now].filter(([name]) => name !== "cell" && name !== "run").join("&");
  if (filters !== drawn) {
    drawGrid(PLACES.grid, matches);
    drawNightTotals(PLACES.totals, matches);
    drawFailures(PLACES.failures, matches);
    drawSteps(PLACES.speeds, matches);
    drawn = filters;
  }
  drawNightCell(PLACES.cell, now.get("cell") || "", now.has("run") ? Number(now.get("run")) : null);
  for (const canvas of PLACES.grid.querySelectorAll("canvas[data-cell]")) if (canvas.width > 300 || canvas.dataset.cell === now.get("cell")) repaint(canvas);
}
if (RUNS.length) PLACES.period.append(`${day(RUNS[0])} to ${day(RUNS[RUNS.length - 1])} UTC, the newest right`);
drawFilters(PLACES.filters);
drawHosts(PLACES.hosts);
drawBetween(PLACES.between);
follow();
addEventListener("hashchange", follow);
PLACES.grid.addEventListener("keydown", moveInGrid);
PLACES.grid.addEventListener("click", (event) => {
  const canvas = event.target.closest("canvas[data-cell]");
  if (!canvas) return;
  ask({ cell: canvas.dataset.cell, run: String(runAt(canvas, event)) });
  PLACES.cell.focus();
  PLACES.cell.scrollIntoView({ block: "nearest" });
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  const first = PLACES.grid.querySelector("canvas");
  if (first) first.focus();
});
addEventListener("keydown", (event) => {
  const typing = event.target.matches && event.target.matches("input, select, textarea");
  if (event.key === "Escape" && asked().get("cell")) {
    const back = PLACES.grid.querySelector(`canvas[data-cell="${CSS.escape(asked().get("cell"))}"]`);
    ask({ cell: "", run: "" });
    if (back) back.focus();
  } else if (event.key === "/" && !typing) {
    event.preventDefault();
    PLACES.filters.elements.text.focus();
  }
});
