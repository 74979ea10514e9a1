// One cell over all runs: since when it is as it is, what a chosen run had, and its speeds.
let measured = null;
function numbers() {
  measured = measured || unpack("numbers").then((text) => (text ? JSON.parse(text) : null));
  return measured;
}
function differences(was, now) {
  const names = [...new Set([...Object.keys(was), ...Object.keys(now)])];
  return names.filter((name) => was[name] !== now[name]).map((name) => `${name} ${was[name] || "none"} became ${now[name] || "none"}`);
}
// Runs of earlier versions have stored no facts of nodes and no inputs of verdicts, which is no change.
function known(was, now) {
  return Object.keys(was).length && Object.keys(now).length ? differences(was, now) : [];
}
// Ranks that failed report few facts: those that they lack are no change.
function reported(one, other) {
  return other.name === "ok" ? one.facts : Object.fromEntries(Object.entries(one.facts).filter(([name]) => name in other.facts));
}
function changesOfRuns(before, place) {
  const [was, now] = [before, place].map((at) => FACTS.settings[RUNS[at].setting]);
  return [...differences(was.shared, now.shared), ...known(was.basis, now.basis)];
}
function entryOf(name, ...value) {
  return value.flat().some((one) => one !== "" && one !== undefined && one !== null) ? [h("dt", {}, name), h("dd", {}, ...value)] : [];
}
function listed(lines) {
  return h("ul", {}, lines.map((line) => h("li", {}, line)));
}
// The last run before in which the cell was run.
function before(cell, place) {
  const every = outcomesOf(cell);
  for (let at = place - 1; at >= 0; at -= 1) if (every[at] && every[at].verdict !== "not_run") return at;
  return -1;
}
function changesBefore(cell, place) {
  const [last, now] = [before(cell, place), outcomesOf(cell)[place]];
  if (last < 0 || now.verdict === "not_run") return null;
  const was = outcomesOf(cell)[last];
  return [...differences(reported(was, now), reported(now, was)), ...known(was.nodes, now.nodes), ...changesOfRuns(last, place)];
}
// A link to the next run that has the cell.
function turn(cell, from, by, text) {
  const every = outcomesOf(cell);
  let place = from + by;
  while (RUNS[place] && !every[place]) place += by;
  return RUNS[place] ? h("a", { href: address({ cell: cell.id, run: String(place) }), class: "turn" }, text) : "";
}
function runOf(cell, place) {
  const run = RUNS[place];
  if (!run) return "";
  const one = outcomesOf(cell)[place];
  const head = h("h3", {}, `${place === newestOf(cell) ? "Newest run" : "Run"} of ${day(run)} UTC `, one ? h("span", { class: `badge ${one.verdict}` }, VERDICTS[one.verdict][1]) : "",
    " ", turn(cell, place, -1, "earlier"), " ", turn(cell, place, 1, "later"));
  if (!one) return [head, h("p", {}, "This run has no such cell.")];
  const [changes, page] = [changesBefore(cell, place), pageOf(cell, place)];
  return [head, page ? h("p", {}, h("a", { class: "page", href: page }, "Open the cell in the page of this run")) : "",
    h("dl", {}, entryOf("run", run.id, run.page ? "" : " (its page is not kept)"), entryOf("outcome", one.name),
      entryOf("changed before it", changes === null ? "" : changes.length ? listed(changes) : "nothing that is recorded")),
    h("details", {}, h("summary", {}, "Versions and settings"), h("dl", {}, Object.entries({ ...one.facts, ...one.nodes }).flatMap(([name, value]) => entryOf(name, value))))];
}
function speedTraces(one, values, wire) {
  const days = RUNS.map((run) => new Date(run.started * 1000).toISOString());
  const found = [{ name: one.name, x: days, y: values, mode: "lines+markers", type: "scatter", line: { width: 1, color: colour("link") }, marker: { size: 4, color: colour("link") }, hovertemplate: `%{y:.4g} ${one.unit}<br>%{text}<extra></extra>`, text: RUNS.map((run) => run.id.replace(/[<>&]/g, "?")) }];
  if (wire) found.push({ name: "wire between the nodes", x: days, y: wire, mode: "lines", type: "scatter", line: { dash: "dash", width: 1.5, color: colour("faint") }, connectgaps: true, hovertemplate: "wire %{y:.3g} GB/s<extra></extra>" });
  const edges = [0, ...one.steps.map((step) => step.night), RUNS.length];
  if (one.steps.length) edges.slice(0, -1).forEach((start, place) => {
    const level = place ? one.steps[place - 1].after : one.steps[0].before;
    found.push({ name: "level", x: [days[start], days[Math.max(start, edges[place + 1] - 1)]], y: [level, level], mode: "lines", type: "scatter", line: { width: 3, color: colour("changed") }, hoverinfo: "skip", showlegend: place === 0 });
  });
  return found;
}
function numbersTable(one, values, wire) {
  const number = (value, unit) => (value === null || value === undefined ? "" : `${value} ${unit}`);
  const made = () => table(["run", one.name, ...(wire ? ["wire"] : [])], RUNS.flatMap((run, place) => (values[place] === null ? [] : [h("tr", {}, h("td", {}, day(run)), h("td", {}, number(values[place], one.unit)), wire ? h("td", {}, number(wire[place], "GB/s")) : "")])).reverse());
  return fold(`Numbers (${values.filter((value) => value !== null).length})`, made);
}
async function drawSpeed(place, cell, one) {
  const all = await numbers();
  if (!all) return;
  const values = all.speeds[one.values];
  const wire = cell.wire !== undefined && one.unit === "GB/s" ? all.wires[cell.wire] : null;
  place.append(numbersTable(one, values, wire));
  const drawn = h("div", {});
  place.prepend(drawn);
  const shapes = one.steps.map((step) => ({ type: "line", yref: "paper", y0: 0, y1: 1, x0: new Date(RUNS[step.night].started * 1000).toISOString(), x1: new Date(RUNS[step.night].started * 1000).toISOString(), line: { color: colour("changed"), width: 2, dash: "dot" } }));
  await plot(drawn, `${one.name} over the runs; the table below has the numbers`, speedTraces(one, values, wire), { height: 280, shapes, margin: { l: 60, r: 20, t: 10, b: 45 }, xaxis: { type: "date" }, yaxis: { title: { text: one.unit }, rangemode: "tozero" }, showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom" } });
}
function speedOf(one) {
  return h("section", {}, h("h3", {}, one.name), h("p", { class: "faint" }, one.shape),
    one.steps.length ? h("ul", {}, one.steps.map((step) => h("li", {}, step.line, step.changes.length ? listed(step.changes) : ""))) : "", h("div", { class: "speed" }));
}
// The open cell is below the group of its row, if that is to be seen.
function placeBeside(place, id) {
  const row = seenRows().find((one) => one.dataset.cell === id);
  const beside = row ? row.closest(".group") : PLACES.grid;
  if (place.previousElementSibling !== beside) beside.after(place);
}
function drawNightCell(place, id, run) {
  const cell = BY_ID.get(id);
  const opened = id && place.dataset.cell !== id;
  place.hidden = !id;
  place.dataset.cell = id;
  if (!id) return place.replaceChildren();
  placeBeside(place, id);
  if (!cell) return place.replaceChildren(h("p", { class: "warning" }, `There is no cell ${id} in these runs.`));
  if (opened) {
    place.className = cell.verdict;
    place.replaceChildren(h("a", { href: address({ cell: "", run: "" }), class: "close", onclick: (event) => { event.preventDefault(); closeCell(); } }, "close (Esc)"),
      h("h2", {}, cell.id, " ", h("span", { class: "faint" }, cell.state)), ...(cell.lines || []).map((line) => h("p", {}, line)), h("div", { class: "run" }),
      h("div", { class: "speeds" }, (cell.speeds || []).map(speedOf)), fold("One letter for each run", () => h("pre", { class: "letters" }, outcomesOf(cell).map(letterOf).join(""))));
    [...place.querySelectorAll(".speed")].forEach((one, at) => drawSpeed(one, cell, cell.speeds[at]));
  }
  place.querySelector(".run").replaceChildren(...[runOf(cell, run === null ? newestOf(cell) : run)].flat().filter(Boolean));
  // Who moves in the grid, or goes from run to run here, stays there.
  if (!opened || document.activeElement.closest("canvas[data-cell]")) return;
  const covered = getComputedStyle(PLACES.filters).position === "sticky" ? PLACES.filters.offsetHeight : 0;
  place.style.scrollMarginTop = `${covered + 12}px`;
  place.focus({ preventScroll: true });
  place.scrollIntoView({ block: "start" });
}
