// Puts the page of nights together, and follows the address.
const PLACES = Object.fromEntries(["period", "totals", "filters", "grid", "cell", "speeds", "failures", "hosts", "between"].map((id) => [id, document.getElementById(id)]));
function drawNightTotals(place, shown) {
  const counts = new Map();
  for (const cell of shown) counts.set(cell.state, (counts.get(cell.state) || 0) + 1);
  place.replaceChildren(...[...counts].map(([state, count]) => h("b", {}, `${count} ${state}`)), shown.length < CELLS.length ? h("span", { class: "faint" }, `${shown.length} of ${CELLS.length} cells`) : "");
}
function cellLinks(cells) {
  const links = (some) => some.flatMap(({ id }, at) => [at ? ", " : "", h("a", { href: address({ cell: id, run: "" }) }, id)]);
  return [links(cells.slice(0, 6)), cells.length > 6 ? fold(`and ${cells.length - 6} more`, () => links(cells.slice(6))) : ""];
}
function drawFailures(place, shown) {
  const rows = FACTS.failures.map((one) => [one, one.cells.map((at) => CELLS[at]).filter((cell) => shown.has(cell))]).filter(([, cells]) => cells.length).map(([one, cells]) => h("tr", {},
    h("td", {}, h("code", {}, one.name)), h("td", {}, one.state, one.state === "comes and goes" ? "" : ` since ${day(RUNS[one.since])}`), h("td", { class: "date" }, day(RUNS[one.first])), h("td", { class: "date" }, day(RUNS[one.last])),
    h("td", {}, String(one.runs)), h("td", {}, cellLinks(cells)), h("td", {}, one.hosts.join(", ")), h("td", {}, one.issue ? link(one.issue) : "")));
  place.replaceChildren();
  if (rows.length) place.append(h("h2", {}, "Failures"), table(["failure", "state", "first seen", "last seen", "runs", "cells", "hosts", "issue"], rows));
}
function drawSteps(place, shown) {
  const rows = [...shown].flatMap((cell) => (cell.speeds || []).flatMap((one) => one.steps.map((step) => [step.night, h("tr", {},
    h("td", { class: "date" }, day(RUNS[step.night])), h("td", {}, h("a", { href: address({ cell: cell.id, run: String(step.night) }) }, cell.id)), h("td", {}, step.line), h("td", {}, step.changes.length ? listed(step.changes) : "nothing that is recorded"))])));
  rows.sort(([a], [b]) => b - a);
  place.replaceChildren();
  if (rows.length) place.append(h("h2", {}, "Steps of speed"), table(["run", "cell", "step", "changed before it"], rows.map(([, row]) => row)));
}
function drawHosts(place, shown) {
  const hosts = FACTS.hosts.filter((one) => one.cells.some((at) => shown.has(CELLS[at])));
  const [own, others] = [hosts.filter((one) => one.failures.length), hosts.filter((one) => !one.failures.length)];
  place.replaceChildren();
  if (FACTS.hosts.length < 2 || !hosts.length) return;
  place.append(h("h2", {}, "Hosts"));
  if (own.length) place.append(table(["host", "failures that only it has"], own.map((one) => h("tr", {}, h("td", {}, one.name), h("td", {}, h("ul", {}, one.failures.map((name) => h("li", {}, h("code", {}, name)))))))));
  if (others.length) place.append(fold(`${plural(others.length, "host has", "hosts have")} no failure of ${others.length === 1 ? "its" : "their"} own`, () => h("p", {}, others.map((one) => one.name).join(", "))));
}
// Changes since the run before, of the same site.
const BETWEEN = RUNS.map((run, place) => {
  for (let at = place - 1; at >= 0; at -= 1) if (RUNS[at].site === run.site) return changesOfRuns(at, place);
  return [];
});
function drawBetween(place, site) {
  const rows = BETWEEN.map((lines, at) => [lines, RUNS[at]]).filter(([lines, run]) => lines.length && (!site || run.site === site)).reverse();
  place.replaceChildren();
  if (rows.length) place.append(h("h2", {}, "Changes between runs"), table(["run", "changed before it"], rows.map(([lines, run]) => h("tr", {}, h("td", {}, `${[run.site, day(run)].filter(Boolean).join(", ")} (${run.id})`), h("td", {}, listed(lines))))));
}
let drawn = null;
function follow() {
  const now = asked();
  followFilters(PLACES.filters, now);
  // All but the open cell changes with the filters alone.
  const filters = [...now].filter(([name]) => name !== "cell" && name !== "run").join("&");
  if (filters !== drawn) {
    const matches = matcher();
    const shown = new Set(CELLS.filter(matches));
    PLACES.grid.after(PLACES.cell);
    drawGrid(PLACES.grid, matches);
    drawNightTotals(PLACES.totals, [...shown]);
    drawFailures(PLACES.failures, shown);
    drawSteps(PLACES.speeds, shown);
    drawHosts(PLACES.hosts, shown);
    drawBetween(PLACES.between, now.get("site"));
    drawn = filters;
  }
  const [was, id] = [PLACES.cell.dataset.cell, now.get("cell") || ""];
  drawNightCell(PLACES.cell, id, chosenRun(id));
  for (const canvas of PAINTED) if (canvas.dataset.cell === was || canvas.dataset.cell === id) repaint(canvas);
}
if (RUNS.length) PLACES.period.append(`${day(RUNS[0])} to ${day(RUNS[RUNS.length - 1])} UTC, the newest right`);
drawFilters(PLACES.filters);
follow();
listen();
addEventListener("hashchange", follow);
